"""How much a suite notices: every tensor and hyper-parameter is spoilt in turn."""
