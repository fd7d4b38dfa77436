// Runs training steps of llm.c's CPU trainer on request: one step per line of standard input,
// answered by
// a line of JSON. scripts/bench_peers.py compiles it against a checkout of llm.c, which is not
// included.
//   peer_llmc CHECKPOINT SHARD ROWS T
#define TESTING  // excludes llm.c's own main(), which has fixed sizes and paths
#include "train_gpt2.c"

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const int rows = atoi(argv[3]), length = atoi(argv[4]);
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  DataLoader loader;
  dataloader_init(&loader, argv[2], rows, length, 0, 1, 1);
  char line[16];
  for (int step = 1; fgets(line, sizeof line, stdin) != NULL; ++step) {
    const double start = seconds_now();
    dataloader_next_batch(&loader);
    gpt2_forward(&model, loader.inputs, loader.targets, rows, length);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    const double computed = seconds_now();
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.0f, step);
    const double end = seconds_now();
    printf("{\"seconds\": %.6f, \"update\": %.6f, \"loss\": \"%f\"}\n", end - start, end - computed,
           model.mean_loss);
    fflush(stdout);
  }
  return 0;
}
