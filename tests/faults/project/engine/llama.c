int base_tokens(void);

int llama_tokens(void) { return base_tokens(); }
