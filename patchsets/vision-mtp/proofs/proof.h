// What the programs of the proofs share: contexts without rounding, batches, a distance.

#pragma once

#include "llama.h"
#include "llama-ext.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

using tokens = std::vector<llama_token>;
using floats = std::vector<float>;

inline void need(bool well, const std::string & what) {
    if (!well) {
        printf("failed: %s\n", what.c_str());
        exit(1);
    }
}

// Only errors are worth reading.
inline void quiet() {
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
}

// Everything in float32, on one thread.
inline llama_context_params exact(int n_seq, int n_ctx, int n_ubatch) {
    llama_context_params p = llama_context_default_params();
    p.n_ctx           = n_ctx * n_seq;
    p.n_batch         = 2048;
    p.n_ubatch        = n_ubatch;
    p.n_seq_max       = n_seq;
    p.n_threads       = 1;
    p.n_threads_batch = 1;
    p.type_k          = GGML_TYPE_F32;
    p.type_v          = GGML_TYPE_F32;
    p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return p;
}

inline llama_model * load(const char * path) {
    llama_model_params p = llama_model_default_params();
    p.load_mtp     = true;
    p.n_gpu_layers = 0;
    p.progress_callback = [](float, void *) { return true; };
    llama_model * model = llama_model_load_from_file(path, p);
    need(model != nullptr, std::string("loading ") + path);
    return model;
}

// Entries of one call of llama_process().
struct batch {
    llama_context * ctx;
    llama_batch_ext * entries;

    explicit batch(llama_context * ctx) : ctx(ctx), entries(llama_batch_ext_init(ctx)) {}
    ~batch() { llama_batch_ext_free(entries); }
    batch(const batch &) = delete;
    batch & operator=(const batch &) = delete;

    int add(llama_seq_id seq, llama_token id, llama_pos pos, bool output) {
        return placed(llama_batch_ext_add_token(entries, seq, id), pos, output);
    }

    // a row of an embedding instead of a token
    int add_row(llama_seq_id seq, const float * row, size_t width, llama_pos pos, bool output) {
        return placed(llama_batch_ext_add_embd(entries, seq, { row, 1, width }), pos, output);
    }

    int placed(int i, llama_pos pos, bool output) {
        const llama_pos all[4] = { pos, pos, pos, 0 };
        llama_batch_ext_set_pos(entries, i, all);
        if (output) {
            llama_batch_ext_set_output_logits(entries, i, true);
        }
        return i;
    }

    bool done() { return llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, entries) == 0; }
};

inline int vocabulary(const llama_model * model) {
    return llama_vocab_n_tokens(llama_model_get_vocab(model));
}

inline double nmse(const float * found, const float * wanted, int n) {
    double error = 0.0, power = 0.0;
    for (int i = 0; i < n; ++i) {
        error += ((double) found[i] - wanted[i]) * ((double) found[i] - wanted[i]);
        power += (double) wanted[i] * wanted[i];
    }
    return error / power;
}
