// Draft logits of a model's NextN block, chained and rolled back as a server does it.
//
// usage: nextn MODEL TOKENS OUT DEPTH N_UBATCH MOVE_AT
//
// A line of TOKENS is one sequence: how many of its tokens are the prompt, then their ids. All are
// evaluated side by side, each under its own sequence id: the prompts at once, the other tokens one
// by one. After each of these steps DEPTH drafts are chained greedily, and removed again. Before
// step MOVE_AT (0: never) both contexts are saved, freed, and restored with the sequence ids in
// reverse order. OUT gets, for every sequence and step, DEPTH rows of logits (float32), and
// OUT.tokens the drafted ids, a line for each sequence.

#include "proof.h"

#include <algorithm>

struct sequence {
    size_t n_prompt = 0;
    tokens ids;
    llama_seq_id id = 0;
    floats pending; // the hidden state before the next token
    floats logits;
    tokens drafted;

    size_t end(int step) const { return step == 0 ? n_prompt : n_prompt + step; }
    size_t begin(int step) const { return step == 0 ? 0 : end(step) - 1; }
    bool runs(int step) const { return end(step) <= ids.size(); }
};

struct pair {
    llama_model * model;
    int n_seq;
    int n_ubatch;
    llama_context * target = nullptr;
    llama_context * draft  = nullptr;

    void open() {
        llama_context_params p = exact(n_seq, 512, n_ubatch);
        target = llama_init_from_model(model, p);
        need(target, "the target's context");
        p.ctx_type  = LLAMA_CONTEXT_TYPE_MTP;
        p.ctx_other = target;
        draft = llama_init_from_model(model, p);
        need(draft, "the MTP context");
        llama_set_embeddings_nextn(target, true, false);
        llama_set_embeddings_nextn(draft, true, true);
    }

    void close() {
        llama_free(draft);
        llama_free(target);
    }
};

static std::vector<uint8_t> saved(llama_context * ctx, llama_seq_id id) {
    std::vector<uint8_t> data(llama_state_seq_get_size(ctx, id));
    need(llama_state_seq_get_data(ctx, data.data(), data.size(), id) == data.size(), "saving");
    return data;
}

static void restore(llama_context * ctx, const std::vector<uint8_t> & data, llama_seq_id id) {
    need(llama_state_seq_set_data(ctx, data.data(), data.size(), id) == data.size(), "restoring");
}

static void move(pair & both, std::vector<sequence> & all) {
    std::vector<std::vector<uint8_t>> target, draft;
    for (auto & s : all) {
        target.push_back(saved(both.target, s.id));
        draft.push_back(saved(both.draft, s.id));
    }
    both.close();
    both.open();
    for (size_t i = 0; i < all.size(); ++i) {
        all[i].id = (llama_seq_id) (all.size() - 1 - i);
        restore(both.target, target[i], all[i].id);
        restore(both.draft, draft[i], all[i].id);
    }
}

// One step of every sequence through the target and the draft block; the batch index of the last
// draft row of each.
static std::vector<int> evaluate(pair & both, std::vector<sequence> & all, int step, int n_embd) {
    batch b(both.target);
    for (auto & s : all) {
        for (size_t p = s.begin(step); s.runs(step) && p < s.end(step); ++p) {
            b.add(s.id, s.ids[p], (llama_pos) p, p + 1 == s.end(step));
        }
    }
    need(b.done(), "the target's batch");

    batch d(both.draft);
    std::vector<floats> rows; // a batch points to them
    rows.reserve(4096);
    std::vector<int> last;
    int i = 0;
    for (auto & s : all) {
        for (size_t p = s.begin(step); s.runs(step) && p < s.end(step); ++p, ++i) {
            const float * h = llama_get_embeddings_nextn_ith(both.target, i);
            need(h, "the target's hidden state");
            rows.push_back(s.pending);
            const int at = d.add(s.id, s.ids[p], (llama_pos) p, p + 1 == s.end(step));
            llama_batch_ext_set_embd_token(d.entries, at, { rows.back().data(), 1, (size_t) n_embd });
            s.pending.assign(h, h + n_embd);
            if (p + 1 == s.end(step)) {
                last.push_back(at);
            }
        }
    }
    need(d.done(), "the draft's batch");
    return last;
}

static void chain(
        pair & both, std::vector<sequence> & all, int step, int depth, int n_embd, std::vector<int> last) {
    const int n_vocab = vocabulary(both.model);
    std::vector<sequence *> running;
    for (auto & s : all) {
        if (s.runs(step)) {
            running.push_back(&s);
        }
    }
    for (int level = 0; level < depth; ++level) {
        batch b(both.draft);
        std::vector<floats> rows;
        rows.reserve(running.size());
        for (size_t r = 0; r < running.size(); ++r) {
            sequence & s = *running[r];
            const float * l = llama_get_logits_ith(both.draft, last[r]);
            const float * h = llama_get_embeddings_nextn_ith(both.draft, last[r]);
            need(l && h, "what the draft block gives");
            const llama_token id = (llama_token) (std::max_element(l, l + n_vocab) - l);
            s.logits.insert(s.logits.end(), l, l + n_vocab);
            s.drafted.push_back(id);
            rows.emplace_back(h, h + n_embd);
            last[r] = b.add(s.id, id, (llama_pos) (s.end(step) + level), true);
            llama_batch_ext_set_embd_token(b.entries, last[r], { rows.back().data(), 1, (size_t) n_embd });
        }
        need(level + 1 == depth || b.done(), "a chained draft");
    }
    for (auto * s : running) {
        need(llama_memory_seq_rm(llama_get_memory(both.draft), s->id, (llama_pos) s->end(step), -1), "roll-back");
    }
}

static std::vector<sequence> read(const char * path, int n_embd) {
    std::vector<sequence> all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        std::istringstream in(line);
        sequence s;
        s.id = (llama_seq_id) all.size();
        s.pending.assign(n_embd, 0.0f);
        in >> s.n_prompt;
        for (llama_token id; in >> id;) {
            s.ids.push_back(id);
        }
        all.push_back(std::move(s));
    }
    need(!all.empty(), "reading the sequences");
    return all;
}

int main(int argc, char ** argv) {
    need(argc == 7, "six arguments");
    quiet();
    const int depth   = atoi(argv[4]);
    const int move_at = atoi(argv[6]);
    llama_model * model = load(argv[1]);
    const int n_embd = llama_model_n_embd(model);

    std::vector<sequence> all = read(argv[2], n_embd);
    pair both = { model, (int) all.size(), atoi(argv[5]) };
    both.open();
    for (int step = 0; std::any_of(all.begin(), all.end(), [&](auto & s) { return s.runs(step); }); ++step) {
        if (move_at > 0 && step == move_at) {
            move(both, all);
        }
        const auto last = evaluate(both, all, step, n_embd);
        chain(both, all, step, depth, n_embd, last);
    }

    std::ofstream out(argv[3], std::ios::binary);
    std::ofstream ids(std::string(argv[3]) + ".tokens");
    for (auto & s : all) {
        out.write((const char *) s.logits.data(), (std::streamsize) (s.logits.size() * sizeof(float)));
        for (llama_token id : s.drafted) {
            ids << id << ' ';
        }
        ids << '\n';
    }
    both.close();
    llama_model_free(model);
    return 0;
}
