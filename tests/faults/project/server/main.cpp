#include "identity.h"

#include <cstdio>

extern "C" int llama_tokens(void);

int main(int argc, char **) {
    if (argc == 2) {
        std::printf("version: small (build %d, commit %s)\n", SMALL_NUMBER, SMALL_COMMIT);
    }
    return llama_tokens() == 42 ? 0 : 1;
}
