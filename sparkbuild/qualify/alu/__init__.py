"""What each PTX instruction computes, as functions of whole arrays of bits."""
