#include "identity.h"

#include <cstdio>
#include <cstring>

int llama_answer();

int main(int argc, char ** argv) {
    if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
        std::fprintf(stderr, "version: 0.6.0-dev (build %d, commit %s)\n", TOY_BUILD, TOY_COMMIT);
        std::fprintf(stderr, "built with a compiler for a machine\n");
        return 0;
    }
    return llama_answer() == 42 ? 0 : 1;
}
