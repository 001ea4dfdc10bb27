// A sequence's recurrent state after a roll-back, when another part of the same batch moved its cell.
//
// usage: rollback MODEL UNIFIED ORDER
//
// ORDER, such as 2013, is the order in which the four sequences are first seen. Sequences 0 and 1
// then get two tokens more than 2 and 3 in one batch, lose these two again, and every sequence goes
// on alone. Prints the NMSE of each one's next logits to those of the same tokens evaluated alone.

#include "proof.h"

static const int N_FIRST = 12;

static llama_context * open(llama_model * model, bool unified) {
    llama_context_params p = exact(4, 256, 256);
    p.n_rs_seq   = 2;
    p.kv_unified = unified;
    llama_context * ctx = llama_init_from_model(model, p);
    need(ctx, "a context");
    return ctx;
}

static llama_token token_at(int seq, int pos) {
    return 20 + (seq * 37 + pos * 11 + pos * pos * seq) % 200;
}

static floats alone(llama_model * model, bool unified, int seq) {
    llama_context * ctx = open(model, unified);
    batch b(ctx);
    for (int p = 0; p <= N_FIRST; ++p) {
        b.add(seq, token_at(seq, p), p, false);
    }
    const int at = b.add(seq, token_at(seq, 99), N_FIRST + 1, true);
    need(b.done(), "a sequence alone");
    const float * l = llama_get_logits_ith(ctx, at);
    floats found(l, l + vocabulary(model));
    llama_free(ctx);
    return found;
}

int main(int argc, char ** argv) {
    need(argc == 4, "three arguments");
    quiet();
    const bool unified = atoi(argv[2]) != 0;
    llama_model * model = load(argv[1]);
    llama_context * ctx = open(model, unified);
    for (const char * c = argv[3]; *c; ++c) {
        batch b(ctx);
        for (int p = 0; p < N_FIRST; ++p) {
            b.add(*c - '0', token_at(*c - '0', p), p, false);
        }
        need(b.done(), "a first batch");
    }
    {
        batch b(ctx);
        for (int s = 0; s < 4; ++s) {
            for (int p = N_FIRST; p < N_FIRST + (s < 2 ? 3 : 1); ++p) {
                b.add(s, token_at(s, p), p, true);
            }
        }
        need(b.done(), "a batch of unequal parts");
    }
    for (int s = 0; s < 2; ++s) {
        need(llama_memory_seq_rm(llama_get_memory(ctx), s, N_FIRST + 1, -1), "roll-back");
    }
    for (int s = 0; s < 4; ++s) {
        batch b(ctx);
        const int at = b.add(s, token_at(s, 99), N_FIRST + 1, true);
        need(b.done(), "a sequence that goes on");
        const floats wanted = alone(model, unified, s);
        printf("%.3e\n", nmse(llama_get_logits_ith(ctx, at), wanted.data(), (int) wanted.size()));
    }
    llama_free(ctx);
    llama_model_free(model);
    return 0;
}
