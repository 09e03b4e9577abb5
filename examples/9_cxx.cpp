// g++ -std=c++11 -DCKPT_NO_REMOTE -I. examples/9_cxx.cpp -o cxx -lpthread      the same from C++: the implementation here, RAII around it
#define CKPT_IMPLEMENTATION
#include "ckpt.h"
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

static void check(ckpt_err e) { if (e != CKPT_OK) throw std::runtime_error(ckpt_last_error()); }

struct state : ckpt_state {
    state() : ckpt_state() {}
    state(const state &) = delete; void operator=(const state &) = delete;
    ~state() { ckpt_state_free(this); }
};
struct closer { void operator()(ckpt_saver *s) const { (void)!ckpt_saver_close(s, 0); } };      // on the way of an exception
int main() try {
    std::vector<float> w(1000);
    state st;
    ckpt_bind_f32(&st, "state/model/w", w.data(), (int64_t)w.size());
    ckpt_saver_desc desc = {};
    desc.state = &st;
    desc.folder = "out/cxx", desc.save_interval = "10ba";
    desc.num_checkpoints_to_keep = 2, desc.overwrite = true;
    ckpt_saver *raw;
    check(ckpt_saver_open(&raw, &desc));
    std::unique_ptr<ckpt_saver, closer> saver(raw);
    for (ckpt_timestamp t = {}; t.batch < 50;) {
        for (float &x : w) x += 0.01f * (1 - x);
        ckpt_next_batch(&t, 1, 0, 0);
        check(ckpt_saver_batch_end(saver.get(), &t));
    }
    std::printf("%d checkpoints\n", ckpt_saver_checkpoints(saver.get(), nullptr));
    check(ckpt_saver_close(saver.release(), 0));        // says whether all is safe
} catch (const std::exception &e) { return std::fprintf(stderr, "%s\n", e.what()), 1; }
