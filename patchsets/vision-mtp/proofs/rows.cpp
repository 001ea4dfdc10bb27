// An MTP block that is told token embeddings with hidden states gives what it gives for the tokens.
//
// usage: rows MODEL EMBEDDINGS | rows METADATA random
//
// A sequence goes to an MTP context three times: as token ids, with rows of EMBEDDINGS (float32, the
// token embeddings) in its middle, and with these rows beside the hidden states of the place after
// their own. Prints the NMSE of the last logits of the second and of the third to the first.
//
// With `random` there is only the metadata of a model without drafts: one block for drafts is
// appended to it, and every weight is drawn.

#include "proof.h"

#include "ggml-backend.h"
#include "ggml.h"
#include "gguf.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

static const int N      = 42; // tokens
static const int BEGIN  = 8;  // of the rows
static const int END    = 30;

static floats embeddings; // [n_vocab, n_embd]

static void draw(ggml_tensor * tensor, void *) {
    // a draft block may bring the token embeddings along: they are the model's
    const bool embeds = strstr(tensor->name, "embed_tokens") || strstr(tensor->name, "token_embd.weight") == tensor->name;
    std::mt19937 random((uint32_t) std::hash<std::string>()(embeds ? "token_embd.weight" : tensor->name));
    std::normal_distribution<float> normal(0.0f, 0.1f);
    floats values(ggml_nelements(tensor));
    for (auto & v : values) {
        v = normal(random);
        // the decay of a state is negative
        v = strstr(tensor->name, "ssm_a") ? -std::fabs(v) : v;
    }
    if (tensor->type == GGML_TYPE_F16) {
        std::vector<ggml_fp16_t> half(values.size());
        ggml_fp32_to_fp16_row(values.data(), half.data(), (int64_t) values.size());
        ggml_fp16_to_fp32_row(half.data(), values.data(), (int64_t) values.size());
        ggml_backend_tensor_set(tensor, half.data(), 0, ggml_nbytes(tensor));
    } else {
        need(tensor->type == GGML_TYPE_F32, std::string("the type of ") + tensor->name);
        ggml_backend_tensor_set(tensor, values.data(), 0, ggml_nbytes(tensor));
    }
    if (strcmp(tensor->name, "token_embd.weight") == 0) {
        embeddings = values;
    }
}

// One block more, which is the drafts': every list with an entry for each block gets another.
static void append_block(gguf_context * meta) {
    const std::string arch = gguf_get_val_str(meta, gguf_find_key(meta, "general.architecture"));
    const std::string count_key = arch + ".block_count";
    const uint32_t n_block = gguf_get_val_u32(meta, gguf_find_key(meta, count_key.c_str()));
    std::vector<std::string> lists; // a key that is set anew goes to the end
    for (int64_t i = 0; i < gguf_get_n_kv(meta); ++i) {
        const std::string key = gguf_get_key(meta, i);
        if (gguf_get_kv_type(meta, i) == GGUF_TYPE_ARRAY && gguf_get_arr_n(meta, i) == n_block && key.find(arch) == 0) {
            lists.push_back(key);
        }
    }
    for (const auto & key : lists) {
        const int64_t i = gguf_find_key(meta, key.c_str());
        const gguf_type type = gguf_get_arr_type(meta, i);
        const size_t size = type == GGUF_TYPE_BOOL || type == GGUF_TYPE_INT8 || type == GGUF_TYPE_UINT8 ? 1 : 4;
        const char * data = (const char *) gguf_get_arr_data(meta, i);
        std::vector<char> longer(data, data + size * n_block);
        if (key == arch + ".attention.recurrent_layers") {
            longer.insert(longer.end(), size, 0); // no draft block is recurrent
        } else {
            longer.insert(longer.end(), data, data + size); // as the first block
        }
        gguf_set_arr_data(meta, key.c_str(), type, longer.data(), n_block + 1);
    }
    gguf_set_val_u32(meta, count_key.c_str(), n_block + 1);
    gguf_set_val_u32(meta, (arch + ".nextn_predict_layers").c_str(), 1);
}

static llama_model * drawn(const char * path) {
    gguf_init_params p = { true, nullptr };
    gguf_context * meta = gguf_init_from_file(path, p);
    need(meta, "reading the metadata");
    append_block(meta);
    llama_model_params mp = llama_model_default_params();
    mp.load_mtp     = true;
    mp.n_gpu_layers = 0;
    llama_model * model = llama_model_init_from_user(meta, draw, nullptr, mp);
    need(model, "making the model");
    gguf_free(meta);
    return model;
}

// 0: ids, 1: rows, 2: rows with the hidden states of another place
static floats told(llama_model * model, int way, const tokens & ids, const floats & hidden) {
    const size_t n_embd = llama_model_n_embd_inp(model);
    const size_t n_hidden = llama_model_n_embd_out(model);
    llama_context_params p = exact(1, 256, 16);
    p.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
    llama_context * ctx = llama_init_from_model(model, p);
    need(ctx, "the MTP context");
    llama_set_embeddings_nextn(ctx, true, true);
    llama_set_embeddings_layer_inp(ctx, 0, false); // so that the graph is reserved anew, as for a server's samplers

    floats logits;
    const int bounds[] = { 0, BEGIN, END, N };
    for (int part = 0; part < 3; ++part) {
        batch b(ctx);
        const bool rows = way != 0 && part == 1;
        for (int i = bounds[part]; i < bounds[part + 1]; ++i) {
            const llama_embd h = { hidden.data() + (i + (rows && way == 2)) * n_hidden, 1, n_hidden };
            if (rows) {
                const int at = b.add_row(0, embeddings.data() + ids[i] * n_embd, n_embd, i, false);
                need(llama_batch_ext_set_embd_state(b.entries, at, h), "a state beside a row");
            } else {
                const int at = b.add(0, ids[i], i, i + 1 == N);
                need(llama_batch_ext_set_embd_token(b.entries, at, h), "a state beside a token");
            }
        }
        need(b.done(), rows ? "a batch of rows" : "a batch of tokens");
        if (bounds[part + 1] == N) {
            const float * l = llama_get_logits_ith(ctx, N - BEGIN - (END - BEGIN) - 1);
            need(l, "logits");
            logits.assign(l, l + vocabulary(model));
        }
    }
    llama_free(ctx);
    return logits;
}

int main(int argc, char ** argv) {
    need(argc == 3, "two arguments");
    quiet();
    llama_model * model = nullptr;
    if (strcmp(argv[2], "random") == 0) {
        model = drawn(argv[1]);
    } else {
        model = load(argv[1]);
        embeddings.resize((size_t) vocabulary(model) * llama_model_n_embd_inp(model));
        std::ifstream file(argv[2], std::ios::binary);
        file.read((char *) embeddings.data(), (std::streamsize) (embeddings.size() * sizeof(float)));
        need((bool) file, "reading the embeddings");
    }
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> any(0, vocabulary(model) - 1);
    tokens ids(N);
    for (auto & id : ids) {
        id = any(random);
    }
    floats hidden((size_t) (N + 1) * llama_model_n_embd_out(model));
    for (auto & h : hidden) {
        h = normal(random);
    }
    const floats wanted = told(model, 0, ids, hidden);
    for (int way = 1; way < 3; ++way) {
        const floats found = told(model, way, ids, hidden);
        printf("%.3e\n", nmse(found.data(), wanted.data(), (int) wanted.size()));
    }
    llama_model_free(model);
    return 0;
}
