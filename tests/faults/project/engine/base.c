int base_tokens(void) { return 42; }
