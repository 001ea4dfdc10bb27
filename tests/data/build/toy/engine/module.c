int module_answer(void) { return 7; }
