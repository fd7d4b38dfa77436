#include "trainer/run/memory_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "trainer/options/option_table.h"
#include "trainer/run/backend.h"
#include "trainer/run/run_memory.h"

namespace muo::trainer {
namespace {

constexpr int kMaxTried = 80;  // configurations to plan

// Cost of each degree of sharding.
constexpr std::array<std::string_view, kNames<optim::Shard>.size()> kShardCosts = {
    "every device updates all", "updated weights are gathered",
    "gradients are reduced in every micro-step", "weights are gathered in every pass"};

// An option that can be changed, with its values in order of cost.
struct Family {
  std::string name;
  std::vector<std::string> values;
};

std::vector<Family> families_of(const RunConfig& run) {
  std::vector<Family> out;
  const TrainOptions& o = run.options;
  if (!run.batch_is_automatic()) {
    Family rows{.name = "device-batch-size", .values = {}};
    const std::int64_t of_a_step = run.step.batch * run.step.accumulation;
    for (std::int64_t each = run.step.batch - 1; each >= 1; --each)
      if (of_a_step % each == 0) rows.values.push_back(std::to_string(each));
    out.push_back(std::move(rows));
  }
  if (o.memory.recompute) out.push_back({.name = "recompute", .values = {"auto"}});
  if (run.world() > 1 && o.sharding.shard) {
    const auto more =
        kNames<optim::Shard>.begin() + static_cast<std::ptrdiff_t>(*o.sharding.shard) + 1;
    out.push_back({.name = "shard", .values = {more, kNames<optim::Shard>.end()}});
  }
  if (o.sharding.replicas == optim::ReplicaAt::kEveryRank && run.group.plugin == nullptr)
    out.push_back({.name = "replicas", .values = {"common"}});
  if (o.numbers.adam_state == DType::kF32 && o.numbers.embedding_state == DType::kF32)
    out.push_back({.name = "adam-state", .values = {"bf16"}});
  if (o.numbers.momentum_state == DType::kF32)
    out.push_back({.name = "momentum-state", .values = {"bf16"}});
  if (run.model.dtype == DType::kF32) out.push_back({.name = "dtype", .values = {"bf16"}});
  if (run.model.dtype == DType::kBF16 && o.numbers.gradients == DType::kF32)
    out.push_back({.name = "gradient-dtype", .values = {"bf16"}});
  Family devices{.name = "devices", .values = {}};
  if (run.group.plugin == nullptr)
    for (int each = run.world() / 2; each >= 1; each /= 2)
      devices.values.push_back(std::to_string(each));
  else
    for (std::int64_t each = 2 * *o.devices.count; each <= run.group.plugin->device_count();
         each *= 2)
      devices.values.push_back(std::to_string(each));
  out.push_back(std::move(devices));
  std::erase_if(out, [](const Family& family) { return family.values.empty(); });
  return out;
}

std::string size_words(std::int64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.2f} GiB", mib / 1024);
}

class Search {
 public:
  Search(const RunConfig& config, const TrainOptions& asked, const data::Corpus& corpus,
         int sharing)
      : asked_run_(config),
        asked_(asked),
        corpus_(corpus),
        sharing_(sharing),
        families_(families_of(config)) {}

  std::vector<Alternative> run() {
    std::vector<const Family*> families;
    std::ranges::transform(families_, std::back_inserter(families),
                           [](const Family& family) { return &family; });
    const std::vector<GivenOption> all = extremes(families);
    const std::optional<Alternative> least = attempt(all);
    // If all options together do not suffice, there is no need to try each alone.
    if (!least || least->fits) {
      std::erase_if(families, [&](const Family* family) { return add_best({family}); });
      for (std::size_t i = 0; i < families.size(); ++i)
        for (std::size_t j = i + 1; j < families.size(); ++j)
          add_best({families[i], families[j]});
    }
    if (found_.empty()) add_fewest(all, least);
    std::ranges::stable_sort(found_, [](const Alternative& a, const Alternative& b) {
      return std::pair(a.time, a.options.size()) < std::pair(b.time, b.options.size());
    });
    found_.resize(std::min(found_.size(), kMaxAlternatives));
    return std::move(found_);
  }

 private:
  // Plans the run with these options. Empty if they are invalid or too many have been tried.
  std::optional<Alternative> attempt(std::vector<GivenOption> options) {
    if (++tried_ > kMaxTried) return std::nullopt;
    TrainOptions changed = asked_;
    const std::vector<OptionRow> rows = option_table(changed);
    Alternative out{.options = std::move(options), .config = {}};
    try {
      for (const auto& [name, value] : out.options) {
        const auto row = std::ranges::find(rows, name, &OptionRow::name);
        MUO_CHECK(row != rows.end(), "no option --", name);
        set_option(*row, std::vector{value}, "--" + name);
      }
      out.config = resolve(changed, corpus_);
    } catch (const InputError&) {
      return std::nullopt;
    }
    const MemoryBudget budget = memory_budget(out.config, sharing_);
    const std::int64_t rank_bytes =
        fit_memory(out.config, budget.to_plan).rank_bytes(out.config.world());
    out.bytes = rank_bytes * out.config.world();
    out.fits = rank_bytes <= budget.per_rank();
    out.time = (1 + recompute_share(out.config)) * asked_run_.world() / out.config.world();
    return out;
  }

  bool keep(std::optional<Alternative> candidate) {
    if (!candidate || !candidate->fits) return false;
    found_.push_back(std::move(*candidate));
    return true;
  }

  static std::vector<GivenOption> extremes(const std::vector<const Family*>& families) {
    std::vector<GivenOption> out(families.size());
    std::ranges::transform(families, out.begin(), [](const Family* family) {
      return GivenOption{.name = family->name, .value = family->values.back()};
    });
    return out;
  }

  // Tries the last values first, because nothing else fits if they do not. Then tries those of the
  // first family in order, to find the smallest change that fits, if possible without
  // recomputation.
  bool add_best(const std::vector<const Family*>& families) {
    std::vector<GivenOption> options = extremes(families);
    std::optional<Alternative> last = attempt(options);
    if (!last || !last->fits) return false;
    const std::vector<std::string>& values = families.front()->values;
    for (auto value = values.begin(); value + 1 != values.end(); ++value) {
      options.front().value = *value;
      if (keep(attempt(options)) && recompute_share(found_.back().config) <= 0) return true;
    }
    return keep(std::move(last));
  }

  void add_fewest(std::vector<GivenOption> options, std::optional<Alternative> all) {
    tried_ = 0;
    // Drops options, starting with the last, that resolve() rejects in combination or that do not
    // help.
    for (std::size_t i = options.size(); i-- > 0 && options.size() > 1;) {
      std::vector<GivenOption> fewer = options;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      std::optional<Alternative> without = attempt(fewer);
      const bool better =
          without && (!all || (all->fits ? without->fits : without->bytes <= all->bytes));
      if (!better) continue;
      options = std::move(fewer);
      all = std::move(without);
    }
    if (all) found_.push_back(std::move(*all));
  }

  const RunConfig& asked_run_;
  const TrainOptions& asked_;
  const data::Corpus& corpus_;
  int sharing_;
  std::vector<Family> families_;
  std::vector<Alternative> found_;
  int tried_ = 0;
};

std::string options_text(const std::vector<GivenOption>& options) {
  std::string out;
  for (const auto& [name, value] : options)
    out += fmt::format("{}--{} {}", out.empty() ? "" : " ", name, value);
  return out;
}

// "not enough memory: 2 devices need 3.00 GiB (1.50 GiB each), but 2.00 GiB are available".
std::string shortage_text(const RunConfig& run, std::int64_t rank_bytes,
                          const MemoryBudget& budget) {
  const bool one = run.world() == 1;
  const std::int64_t available = budget.per_rank() * run.world();
  const bool by_limit = run.options.memory.limit && budget.to_plan <= budget.available;
  const bool host = run.group.plugin == nullptr;
  const std::string need = fmt::format(
      "not enough memory: {} device{} need{} {}{}{}", run.world(), one ? "" : "s", one ? "s" : "",
      size_words(rank_bytes * run.world()),
      one ? "" : fmt::format(" ({} each)", size_words(rank_bytes)),
      recompute_share(run) > 0 ? fmt::format(", recomputing {}", recompute_text(run)) : "");
  if (by_limit)
    return fmt::format("{}, and --memory-limit {} leaves {} beside {}", need,
                       to_text(*run.options.memory.limit), size_words(available),
                       host ? "the program" : "CUDA and its libraries");
  return fmt::format(
      "{}, but {} are {}{}", need, size_words(available),
      host ? "available beside the program" : "free on the GPUs beside CUDA's libraries",
      budget.limit);
}

}  // namespace

std::string Alternative::text() const {
  std::vector<std::string> facts = {size_words(bytes)};
  for (const auto& [name, value] : options) {
    if (name == "device-batch-size") facts.emplace_back("smaller micro-steps");
    if ((name.ends_with("-state") || name.ends_with("dtype")) &&
        std::ranges::find(facts, "rounds to bf16") == facts.end())
      facts.emplace_back("rounds to bf16");
    if (name == "shard")
      facts.emplace_back(kShardCosts.at(static_cast<std::size_t>(*value_of<optim::Shard>(value))));
  }
  if (recompute_share(config) > 0)
    facts.push_back(fmt::format("recomputes {}", recompute_text(config)));
  if (fmt::format("{:.1f}", 100 * (time - 1)) != "0.0")
    facts.push_back(fmt::format("time {:+.1f} %", 100 * (time - 1)));
  return fmt::format("{} ({})", options_text(options), fmt::join(facts, ", "));
}

std::vector<Alternative> nearest_alternatives(const RunConfig& config, const TrainOptions& asked,
                                              const data::Corpus& corpus, int sharing) {
  return Search(config, asked, corpus, sharing).run();
}

void require_fit(const RunConfig& config, const MemoryPlan& plan, const MemoryBudget& budget,
                 const TrainOptions& asked, const data::Corpus& corpus, int sharing) {
  const std::int64_t rank_bytes = plan.rank_bytes(config.world());
  if (rank_bytes <= budget.per_rank()) return;
  const std::string shortage = shortage_text(config, rank_bytes, budget);
  const std::vector<Alternative> near = nearest_alternatives(config, asked, corpus, sharing);
  const std::string smaller = fmt::format("a smaller --depth or --max-seq-len ({} layers, T {})",
                                          config.model.n_layer, config.model.seq_len);
  if (!near.empty() && near.front().fits) {
    std::vector<std::string> texts(near.size());
    std::ranges::transform(near, texts.begin(), &Alternative::text);
    throw input_error("{}: add {}: {}", shortage,
                      texts.size() == 1 ? "this, which fits" : "one of these, which fit",
                      fmt::join(texts, "; "));
  }
  const std::string limit =
      config.options.memory.limit && budget.to_plan <= budget.available
          ? fmt::format(
                "--memory-limit {}, or ",
                to_text(min_memory_limit(
                    near.empty() ? config : near.front().config,
                    near.empty() ? rank_bytes : near.front().bytes / near.front().config.world())))
          : "";
  if (near.empty())
    throw input_error("{}, and no option reduces it: give {}{}", shortage, limit, smaller);
  throw input_error("{}; the minimum is {}, with {}: give {}{}", shortage,
                    size_words(near.front().bytes), options_text(near.front().options), limit,
                    smaller);
}

ByteSize min_memory_limit(const RunConfig& config, std::int64_t rank_bytes) {
  const std::int64_t bytes =
      config.group.plugin == nullptr
          ? rank_bytes * config.world() + process_base(config.world(), false) + kBaseSpread
          : rank_bytes * config.group.ranks_per_device + kLibraryMemory + kContextMemory;
  constexpr std::int64_t kMB = 1'000'000;
  return {(bytes + kMB - 1) / kMB * kMB};
}

}  // namespace muo::trainer
