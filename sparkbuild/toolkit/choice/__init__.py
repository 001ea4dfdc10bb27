"""From what the user asked for to one root of this machine."""
