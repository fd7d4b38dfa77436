#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace muo {

// Everything `train` can be told; resolved values go to the run's config.toml. Fields of -1 or ""
// mean automatic and are replaced by resolve(). Names follow nanochat's base_train.
struct TrainOptions {
  std::vector<std::string> data;
  std::vector<std::string> val_data;
  std::int64_t data_max_bytes = 0;
  std::string tokenizer = "byte";
  std::string backend = "auto";
  int devices = 0;
  int depth = 4;
  std::int64_t n_layer = -1, n_embd = -1, n_head = -1, n_kv_head = -1;
  std::int64_t vocab_size = -1;  // of .bin shards
  std::int64_t max_seq_len = 256;
  std::string window_pattern = "L";
  double softcap = 15.0;
  std::int64_t device_batch_size = -1;
  std::int64_t total_batch_size = -1;  // tokens per step
  std::int64_t num_iterations = -1;
  double target_param_data_ratio = -1;
  double matrix_lr = 0.02, embedding_lr = 0.3, unembedding_lr = 0.008, scalar_lr = 0.5;
  double weight_decay = 0.28;
  std::int64_t warmup_steps = 40;
  double warmdown_ratio = 0.65, final_lr_frac = 0.05;
  std::string strategy = "balanced";
  bool graph = true;
  std::uint64_t seed = 42;
  std::string out;     // run directory
  std::string resume;  // "", "auto" or a checkpoint or run directory
  std::int64_t eval_every = -1, eval_tokens = -1, save_every = -1, sample_every = -1;
  std::int64_t verify_sync_every = -1;
  std::int64_t log_every = 1;
};

}  // namespace muo
