"""Package: a wheel made from the very files that were smoke-tested."""
