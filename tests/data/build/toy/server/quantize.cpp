#ifdef TOY_BROKEN_INCLUDE
#include "no-such-header.h"
#endif

int llama_answer();

#ifdef TOY_BROKEN_LINK
int defined_nowhere();
int broken() { return defined_nowhere(); }
#endif

int main() { return llama_answer() == 42 ? 0 : 1; }
