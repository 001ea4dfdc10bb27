#include "base.h"

int llama_answer() { return base_answer(); }
