#include "base.h"

int base_answer(void) { return 42; }

const char * base_file(void) { return __FILE__; }
