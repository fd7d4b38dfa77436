#include "support/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/check.h"
#include "cli/cli.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/paths.h"
#include "trainer/options/config_file.h"
#include "trainer/options/option_table.h"

namespace muo::cli {
namespace {

using test::parse;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using trainer::EvalOptions;
using trainer::ReportOptions;
using trainer::SampleOptions;
using trainer::TrainOptions;

TrainOptions train(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"train", "--data", "text"});
  return std::get<TrainOptions>(parse(arguments));
}

std::string error_of(const std::vector<std::string>& arguments) {
  return test::message_of<InputError>([&] { parse(arguments); });
}

std::string train_error(const std::vector<std::string>& arguments) {
  return test::message_of<InputError>([&] { train(arguments); });
}

TEST(CommandLine, SetsEveryKindOfOption) {
  const TrainOptions o = train({"a b", "--depth", "6", "--devices=3", "--graph", "off",
                                "--matrix-lr", "1e-2", "--seed", "18446744073709551615",
                                "--strategy", "ddp", "--eval-every", "-1", "--val-data", "v"});
  EXPECT_THAT(o.data.paths, ElementsAre("text", "a b"));
  EXPECT_THAT(o.data.val_paths, ElementsAre("v"));
  EXPECT_EQ(o.model.depth, 6);
  EXPECT_EQ(o.devices.count, 3);
  EXPECT_FALSE(o.capture.graph);
  EXPECT_EQ(o.optimizer.matrix_lr, 1e-2);
  EXPECT_EQ(o.seed, 18446744073709551615U);
  EXPECT_EQ(o.sharding.strategy, "ddp");
  EXPECT_EQ(o.evaluation.every, -1);
  EXPECT_FALSE(o.save.every);
}

TEST(CommandLine, SwitchesExtrasAndNumberFormats) {
  const TrainOptions automatic = train({});
  EXPECT_EQ(automatic.model.preset, trainer::ModelPreset::kNanochat);
  EXPECT_FALSE(automatic.model.has(&model::GptConfig::smear) ||
               automatic.model.has(&model::GptConfig::qk_scale));
  EXPECT_FALSE(automatic.model.has(&model::GptConfig::window_pattern));
  EXPECT_FALSE(automatic.numbers.dtype || automatic.numbers.gradient_wire ||
               automatic.numbers.weight_wire);
  EXPECT_EQ(automatic.numbers.embedding_state, DType::kF32);
  const TrainOptions o =
      train({"--model", "plain", "--value-embeddings", "on", "--smear=off", "--qk-scale", "1.5",
             "--window-pattern", "SL", "--dtype", "bf16", "--gradient-wire", "bf16",
             "--weight-wire", "fp32", "--embedding-state", "bf16", "--backout", "auto"});
  EXPECT_EQ(o.model.preset, trainer::ModelPreset::kPlain);
  EXPECT_TRUE(o.model.value_or(&model::GptConfig::value_embeddings, false));
  EXPECT_FALSE(o.model.value_or(&model::GptConfig::smear, true));
  EXPECT_FALSE(o.model.has(&model::GptConfig::backout));
  EXPECT_EQ(o.model.value_or(&model::GptConfig::qk_scale, 0), 1.5F);
  EXPECT_EQ(o.model.value_or(&model::GptConfig::window_pattern, ""), "SL");
  EXPECT_EQ(o.numbers.dtype, DType::kBF16);
  EXPECT_EQ(o.numbers.gradient_wire, DType::kBF16);
  EXPECT_EQ(o.numbers.weight_wire, DType::kF32);
  EXPECT_EQ(o.numbers.embedding_state, DType::kBF16);
  EXPECT_EQ(train_error({"--dtype", "fp16"}), "--dtype: 'fp16' is neither fp32 nor bf16");
  EXPECT_EQ(train_error({"--smear", "1"}), "--smear: '1' is neither on nor off");
  EXPECT_THAT(train_error({"--model", "gpt2"}), HasSubstr("'gpt2' is unknown: give plain"));
  const auto eval = std::get<EvalOptions>(parse({"eval", "--checkpoint", "c", "--dtype", "bf16"}));
  EXPECT_EQ(eval.dtype, DType::kBF16);
  EXPECT_FALSE(std::get<SampleOptions>(parse({"sample", "--checkpoint", "c"})).dtype);
}

TEST(CommandLine, TakesSizesOfMemory) {
  EXPECT_FALSE(train({}).memory.limit);
  EXPECT_EQ(train({"--memory-limit", "12GB"}).memory.limit->bytes, 12'000'000'000);
  EXPECT_FALSE(train({"--memory-limit", "auto"}).memory.limit);
  EXPECT_EQ(train_error({"--memory-limit", "12G"}),
            "--memory-limit: '12G' is not a size: give bytes, or a number with kB, MB, GB, TB, "
            "KiB, MiB, GiB or TiB: 12GB");
  test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  for (const auto& [text, bytes] :
       {std::pair{"memory-limit = 4000000", 4'000'000}, {"memory-limit = \"3MB\"", 3'000'000}}) {
    test::write_file(file, text);
    EXPECT_EQ(train({"--config", file}).memory.limit->bytes, bytes);
  }
  EXPECT_EQ(train_error({"--memory-limit", "4"}),
            "--memory-limit: '4' is 4 bytes: did you mean 4GB?");
}

TEST(CommandLine, TakesNumbersWithPowersOfAThousand) {
  const auto steps = [](const char* text) {
    return train({"--num-iterations", text}).batch.iterations;
  };
  EXPECT_EQ(steps("1e3"), 1000);
  EXPECT_EQ(steps("100k"), 100'000);
  EXPECT_EQ(steps("0.5M"), 500'000);
  EXPECT_EQ(train({"--target-flops", "2T"}).batch.target_flops, 2e12);
  for (const char* wrong : {"1.5", "k", "1kk", "1e-3", "3 k", "1e3x"})
    EXPECT_THAT(train_error({"--num-iterations", wrong}), HasSubstr("is not a whole number"));
  EXPECT_THAT(train_error({"--num-iterations", "1e30"}), HasSubstr("is too large"));
  EXPECT_THAT(train_error({"--seed", "-1k"}), HasSubstr("a whole number of at least 0"));
}

TEST(CommandLine, TakesUnderscoresForDashesInNamesOnly) {
  const TrainOptions o = train({"--device_batch_size=8", "--out", "my_run"});
  EXPECT_EQ(o.batch.device_rows, 8);
  EXPECT_EQ(o.run.out, "my_run");
}

TEST(CommandLine, AutoMakesAnOptionAutomaticAgain) {
  test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  test::write_file(file, "devices = 3\ndevice-batch-size = \"auto\"");
  EXPECT_EQ(train({"--config", file}).devices.count, 3);
  EXPECT_FALSE(train({"--config", file, "--devices", "auto"}).devices.count);
  test::write_file(file, "devices = 3\ndevice-batch-size = 16");
  EXPECT_EQ(train({"--config", file, "--devices", "3"}).batch.device_rows, 16);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(train({"--config", file, "--devices", "2"}).batch.device_rows);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr(":2: device-batch-size 16 is ignored because --devices is given"));
  test::write_file(file, "batch_size = 3");
  EXPECT_THAT(train_error({"--config", file}), HasSubstr("nanoGPT's, here --device-batch-size"));
}

TEST(CommandLine, ParsesTheOtherCommands) {
  const auto eval = std::get<EvalOptions>(parse({"eval", "--checkpoint", "c", "--devices", "2"}));
  EXPECT_EQ(eval.checkpoint, "c");
  EXPECT_EQ(eval.devices.count, 2);
  const auto sample = std::get<SampleOptions>(
      parse({"sample", "--checkpoint", "c", "--prompt", "a\nb", "--temperature", "0"}));
  EXPECT_THAT(sample.prompts, ElementsAre("a\nb"));
  EXPECT_EQ(sample.sampling.temperature, 0);
  const auto plan = std::get<trainer::PlanOptions>(parse({"plan", "--json", "--depth", "2"}));
  EXPECT_EQ(plan.format, trainer::ReportFormat::kJson);
  EXPECT_EQ(plan.train.model.depth, 2);
  EXPECT_TRUE(std::holds_alternative<trainer::DoctorOptions>(parse({"doctor"})));
}

TEST(CommandLine, SampleTakesSeveralPromptsAndStops) {
  const auto sample = std::get<SampleOptions>(
      parse({"sample", "--prompt", "a", "run", "--stop", "x", "--prompt", "b", "--stop=\n\n"}));
  EXPECT_EQ(sample.checkpoint, "run");
  EXPECT_THAT(sample.prompts, ElementsAre("a", "b"));
  EXPECT_THAT(sample.sampling.stops, ElementsAre("x", "\n\n"));
  EXPECT_EQ(error_of({"sample", "run", "--stop", ""}),
            "--stop: '' matches everywhere: give some text");
  EXPECT_THAT(std::get<SampleOptions>(parse({"sample", "run", "--prompt", ""})).prompts,
              ElementsAre(""));
  EXPECT_THAT(error_of({"sample", "run", "--interactive", "--prompt", "a"}),
              HasSubstr("leave out --prompt"));
  EXPECT_THAT(error_of({"sample", "run", "--top-p", "1.5"}), HasSubstr("out of range"));
}

TEST(CommandLine, HelpShowsEveryOptionWithDefaultAndPlaceholder) {
  const std::string help = std::get<Answer>(parse({"train", "--help-all"})).text;
  TrainOptions options;
  for (const trainer::OptionRow& row : trainer::option_table(options))
    EXPECT_THAT(help, HasSubstr("--" + std::string(row.name) + " " + std::string(row.value)));
  EXPECT_THAT(help, HasSubstr("[nanochat]"));
  EXPECT_THAT(help, HasSubstr("[0.65]"));
  EXPECT_THAT(help, HasSubstr("[auto]"));
  EXPECT_THAT(help, Not(HasSubstr("\n\n\n")));
}

TEST(CommandLine, HelpShowsWhatMostRunsNeedAndHowToSeeTheRest) {
  TrainOptions options;
  for (const char* const command : {"train", "plan"}) {
    const std::string help = std::get<Answer>(parse({command, "--help"})).text;
    const std::string all = std::get<Answer>(parse({command, "--help-all"})).text;
    EXPECT_THAT(help, HasSubstr("--help-all"));
    EXPECT_THAT(help, HasSubstr("Examples:"));
    for (const trainer::OptionRow& row : trainer::option_table(options)) {
      const std::string name = "  --" + std::string(row.name) + " ";
      const bool usual =
          std::ranges::find(trainer::kUsualOptions, row.name) != trainer::kUsualOptions.end();
      EXPECT_EQ(help.find(name) != std::string::npos, usual) << command << name;
      EXPECT_THAT(all, HasSubstr(name)) << command;
    }
  }
  EXPECT_THAT(std::get<Answer>(parse({"plan", "--help"})).text, HasSubstr("--roofline"));
}

TEST(CommandLine, HelpFitsIntoHundredColumns) {
  for (std::vector<const char*> words :
       std::vector<std::vector<const char*>>{{},
                                             {"train"},
                                             {"eval"},
                                             {"sample"},
                                             {"plan"},
                                             {"report"},
                                             {"doctor"},
                                             {"tokenize"},
                                             {"tokenizer"},
                                             {"tokenizer", "train"},
                                             {"tokenizer", "encode"},
                                             {"tokenizer", "decode"},
                                             {"tokenizer", "convert"},
                                             {"sweep"},
                                             {"checkpoint", "export"}}) {
    words.push_back("--help");
    std::istringstream help(std::get<Answer>(parse_command_line(words)).text);
    for (std::string line; std::getline(help, line);)
      EXPECT_LE(line.size(), 100U) << line;
  }
}

TEST(CommandLine, RefusesUnknownOptionsAndSuggests) {
  EXPECT_EQ(train_error({"--dept", "4"}), "train: unknown option --dept; did you mean --depth?");
  EXPECT_THAT(
      train_error({"--batch-size=4"}),
      StartsWith("train: unknown option --batch-size: nanoGPT's, here --device-batch-size"));
  EXPECT_THAT(error_of({"eval", "--batch-size=4"}),
              HasSubstr("unknown option --batch-size; did you mean"));
  EXPECT_EQ(train_error({"--xyzzy", "1"}),
            "train: unknown option --xyzzy (muograph train --help-all lists the options)");
  EXPECT_THAT(train_error({"-d", "4"}), HasSubstr("unknown option -d"));
  EXPECT_THAT(error_of({"eval", "--checkpont", "x"}), HasSubstr("did you mean --checkpoint?"));
  EXPECT_EQ(error_of({"doctor", "now"}), "doctor: unexpected argument 'now'");
  EXPECT_EQ(error_of({"plan", "my.toml"}),
            "plan: unexpected argument 'my.toml'; did you mean --config my.toml?");
}

TEST(CommandLine, ARooflineIsAKindOfPlan) {
  const auto plan =
      std::get<trainer::PlanOptions>(parse({"plan", "--roofline", "h100", "--measured", "f"}));
  EXPECT_EQ(plan.kind, trainer::PlanKind::kRoofline);
  EXPECT_EQ(plan.roofline, "h100");
  EXPECT_EQ(plan.measured, "f");
  EXPECT_THAT(error_of({"plan", "--roofline", "h100", "--compare"}), HasSubstr("give only one of"));
  EXPECT_THAT(error_of({"plan", "--measured", "f"}), HasSubstr("--measured needs --roofline"));
}

TEST(CommandLine, ReportTakesRunsAsPositionalArguments) {
  const auto report = std::get<ReportOptions>(parse({"report", "a", "b", "-o", "page.html", "c"}));
  EXPECT_THAT(report.runs, ElementsAre("a", "b", "c"));
  EXPECT_EQ(report.out, "page.html");
  const auto named = std::get<ReportOptions>(parse({"report", "--runs", "a", "b", "--out=x"}));
  EXPECT_THAT(named.runs, ElementsAre("a", "b"));
  EXPECT_EQ(named.out, "x");
  EXPECT_EQ(std::get<ReportOptions>(parse({"report", "a"})).out, "report.html");
  EXPECT_EQ(error_of({"report"}),
            "report: RUN... is required: run directories, as in muograph report runs/d12");
  EXPECT_EQ(error_of({"report", "a", "-p", "x"}),
            "report: unknown option -p (muograph report --help lists the options)");
}

TEST(CommandLine, ReportFollowsWithoutWriting) {
  const auto report = std::get<ReportOptions>(parse({"report", "--follow", "a", "--port", "0"}));
  EXPECT_TRUE(report.follow);
  EXPECT_EQ(report.port, 0);
  EXPECT_EQ(std::get<ReportOptions>(parse({"report", "a", "--follow"})).port, 6007);
  const char* const both = "report: --follow writes no file: leave out --text and --out";
  EXPECT_EQ(error_of({"report", "a", "--follow", "--text"}), both);
  EXPECT_EQ(error_of({"report", "a", "--follow", "-o", "report.html"}), both);
  EXPECT_EQ(error_of({"report", "a", "--port", "6007"}), "report: --port needs --follow");
  for (const char* port : {"65536", "-1", "x"})
    EXPECT_THAT(error_of({"report", "a", "--follow", "--port", port}), HasSubstr("--port: '"));
}

TEST(CommandLine, RejectsUnknownBackends) {
  EXPECT_EQ(train_error({"--backend", "hip"}),
            "--backend: 'hip' is unknown: give auto, host, cuda");
}

TEST(CommandLine, RefusesUnknownCommandsAndSuggests) {
  EXPECT_THAT(error_of({"trian"}), HasSubstr("unknown command 'trian': did you mean train?"));
  EXPECT_THAT(error_of({"42"}), HasSubstr("give train, sweep, eval, sample, plan, bench, report, "
                                          "compare, timeline, checkpoint, tokenize, tokenizer,"));
  EXPECT_THAT(error_of({"checkpoint", "improt"}),
              HasSubstr("unknown subcommand 'improt': expected import, export, inspect, verify"));
  EXPECT_THAT(error_of({"checkpoint", "import"}), HasSubstr("--model is required"));
  EXPECT_THAT(error_of({}), HasSubstr("no command"));
}

TEST(CommandLine, RejectsInvalidValuesWithOptionValueAndRange) {
  EXPECT_EQ(train_error({"--depth", "0"}), "--depth: '0' is out of range: give from 1 to 1024");
  EXPECT_EQ(train_error({"--depth", "-4"}), "--depth: '-4' is out of range: give from 1 to 1024");
  EXPECT_EQ(train_error({"--depth", "four"}), "--depth: 'four' is not a whole number");
  EXPECT_EQ(train_error({"--depth", "4.5"}), "--depth: '4.5' is not a whole number");
  EXPECT_EQ(train_error({"--depth", "4x"}), "--depth: '4x' is not a whole number");
  EXPECT_EQ(train_error({"--depth", ""}), "--depth: '' is not a whole number");
  EXPECT_EQ(train_error({"--seed", "-1"}), "--seed: '-1' is not a whole number of at least 0");
  EXPECT_EQ(train_error({"--num-iterations", "99999999999999999999"}),
            "--num-iterations: '99999999999999999999' is too large");
  EXPECT_THAT(train_error({"--max-seq-len", "1"}), HasSubstr("give from 2 to"));
  EXPECT_THAT(train_error({"--matrix-lr", "nan"}), HasSubstr("out of range"));
  EXPECT_THAT(train_error({"--matrix-lr", "-0.1"}), HasSubstr("out of range"));
  EXPECT_THAT(train_error({"--warmdown-ratio", "1.5"}), HasSubstr("give from 0 to 1"));
  EXPECT_THAT(train_error({"--eval-every", "0"}), HasSubstr("or -1 (never)"));
  EXPECT_EQ(train_error({"--graph", "maybe"}), "--graph: 'maybe' is neither on nor off");
  EXPECT_THAT(train_error({"--strategy", "best"}),
              HasSubstr("'best' is unknown: give auto, balanced"));
  EXPECT_THAT(train_error({"--graph-branches", "2"}), HasSubstr("'2' is unknown: give auto, 3, 1"));
  EXPECT_EQ(train_error({"--attention", "flash"}),
            "--attention: 'flash' is unknown: give auto, cudnn, own, portable");
  EXPECT_THAT(train_error({"--deterministic", "mostly"}), HasSubstr("'mostly'"));
}

TEST(CommandLine, RefusesMissingValues) {
  EXPECT_EQ(train_error({"--depth"}), "train: --depth N needs a value");
  EXPECT_EQ(error_of({"train", "--n_layer"}), "train: --n-layer N needs a value");
  EXPECT_THAT(error_of({"train"}), HasSubstr("--data is required"));
  EXPECT_THAT(error_of({"eval"}), HasSubstr("DIR is required: checkpoint, or run directory"));
}

TEST(CommandLine, UsesTheLastOfRepeatedOptionsWithANote) {
  testing::internal::CaptureStderr();
  const TrainOptions o =
      train({"--depth", "4", "--out", "a", "--depth=6", "--data", "more", "--depth", "5",
             "--config", "none.toml", "--config", "d4-cpu.toml"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "muograph: note: --config is given 2 times; using the last, d4-cpu.toml\n"
            "muograph: note: --depth is given 3 times; using the last, 5\n");
  EXPECT_EQ(o.model.depth, 5);
  EXPECT_EQ(o.run.out, "a");
  EXPECT_THAT(o.data.paths, ElementsAre("text", "more")) << "a list";
  EXPECT_EQ(train_error({"--depth", "4", "--depth", "five"}),
            "--depth: 'five' is not a whole number");
}

TEST(CommandLine, TakesWordsAfterTwoDashesLiterally) {
  EXPECT_THAT(std::get<trainer::TokenizeOptions>(
                  parse({"tokenize", "--tokenizer", "byte", "--out", "o", "--", "-x.txt", "--out"}))
                  .data,
              testing::ElementsAre("-x.txt", "--out"));
  EXPECT_EQ(std::get<SampleOptions>(parse({"sample", "--", "-run"})).checkpoint, "-run");
  EXPECT_THAT(error_of({"sample", "run", "--", "-run"}), HasSubstr("-run"));
  EXPECT_THAT(error_of({"train", "--", "--data"}), HasSubstr("--data"));
}

TEST(CommandLine, TakesARunAsPositionalArgument) {
  const auto sample = std::get<SampleOptions>(parse({"sample", "run", "--prompt", "a"}));
  EXPECT_EQ(sample.checkpoint, "run");
  EXPECT_EQ(std::get<EvalOptions>(parse({"eval", "--devices", "2", "run"})).checkpoint, "run");
  EXPECT_EQ(std::get<trainer::VerifyOptions>(parse({"checkpoint", "verify", "run"})).checkpoint,
            "run");
  EXPECT_EQ(std::get<trainer::InspectOptions>(parse({"checkpoint", "inspect", "run"})).checkpoint,
            "run");
  EXPECT_EQ(std::get<trainer::ExportOptions>(parse({"checkpoint", "export", "run", "--out", "o"}))
                .checkpoint,
            "run");
  EXPECT_EQ(error_of({"sample", "run", "again"}), "sample: unexpected argument 'again'");
  EXPECT_EQ(error_of({"eval", "run", "--checkpoint", "again"}), "eval: unexpected argument 'run'");
  EXPECT_THAT(error_of({"eval", "-d", "run"}), HasSubstr("unknown option -d"));
  EXPECT_THAT(std::get<Answer>(parse({"eval", "--help"})).text,
              HasSubstr("Usage: muograph eval DIR [OPTIONS]"));
}

TEST(CommandLine, RejectsInvalidUtf8) {
  EXPECT_THAT(train_error({"--out", "a\xFF"}), HasSubstr("is not UTF-8"));
  EXPECT_THAT(error_of({"train", "--data", "\xC3"}), HasSubstr("is not UTF-8"));
}

TEST(ConfigFile, IsOverruledByTheCommandLine) {
  test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  test::write_file(file,
                   "depth = 8\nn_embd = 320\nn-head = 5\nmatrix-lr = 0.5\nnum-iterations = 7\n"
                   "data = ['x', 'y']\ngraph = false\n");
  const TrainOptions read = std::get<TrainOptions>(parse({"train", "--config", file}));
  EXPECT_THAT(read.data.paths, ElementsAre("x", "y"));
  EXPECT_EQ(read.model.depth, 8);
  EXPECT_EQ(read.model.value_or(&model::GptConfig::n_embd, 0), 320);
  EXPECT_FALSE(read.capture.graph);
  const TrainOptions given = train({"--matrix-lr", "0.25", "--config", file});
  EXPECT_THAT(given.data.paths, ElementsAre("text"));
  EXPECT_EQ(given.optimizer.matrix_lr, 0.25);
  EXPECT_EQ(given.batch.iterations, 7);
}

TEST(ConfigFile, MayBeAnInstalledOne) {
  EXPECT_EQ(trainer::find_config("d4-cpu.toml"),
            std::filesystem::path(test::source_directory()) / "configs/d4-cpu.toml");
  EXPECT_THAT(
      test::message_of<InputError>([] { return trainer::find_config("no_such.toml").string(); }),
      HasSubstr("--config no_such.toml: no such file; installed files: bench_n.toml, "));
  EXPECT_EQ(trainer::find_config("./d4-cpu.toml"), "./d4-cpu.toml");
}

TEST(ConfigFile, LosesValuesThatAnOptionOfTheCommandLineReplaces) {
  test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  test::write_file(file, "depth = 8\nn-layer = 8\nn-embd = 512\nn-head = 4\nnum-iterations = 7\n");
  const TrainOptions deeper = train({"--config", file, "--depth", "4"});
  EXPECT_FALSE(deeper.model.has(&model::GptConfig::n_layer) ||
               deeper.model.has(&model::GptConfig::n_embd));
  EXPECT_EQ(deeper.batch.iterations, 7);
  EXPECT_FALSE(train({"--config", file, "--target-param-data-ratio", "5"}).batch.iterations);
  test::write_file(file, "smear = true\nqk-scale = 2\nwindow-pattern = 'S'\nmax-seq-len = 64\n");
  EXPECT_TRUE(train({"--config", file}).model.value_or(&model::GptConfig::smear, false));
  const trainer::ModelOptions plain = train({"--config", file, "--model", "plain"}).model;
  EXPECT_FALSE(plain.has(&model::GptConfig::smear) || plain.has(&model::GptConfig::qk_scale));
  EXPECT_FALSE(plain.has(&model::GptConfig::window_pattern));
  EXPECT_EQ(plain.value_or(&model::GptConfig::seq_len, 0), 64);
}

TEST(ConfigFile, RejectsUnknownKeysAndInvalidValuesWithFileAndLine) {
  test::TemporaryDirectory directory;
  const std::string file = directory.path() / "c.toml";
  const auto error = [&](const std::string& text) {
    test::write_file(file, text);
    return train_error({"--config", file});
  };
  EXPECT_EQ(error("seed = 1\ndeph = 4"), file + ":2: deph: unknown key; did you mean depth?");
  EXPECT_EQ(error("out = 'x'\nxyzzy = 4"), file + ":2: xyzzy: unknown key");
  EXPECT_EQ(error("depth = 0"), file + ":1: depth: '0' is out of range: give from 1 to 1024");
  EXPECT_EQ(error("depth = [1, 2]"), file + ":1: depth: takes one value, not 2");
  EXPECT_THAT(train_error({"--config", file + "x"}), HasSubstr("No such file"));
  EXPECT_THAT(train_error({"--config", directory.path()}), HasSubstr("is a directory"));
}

TEST(ConfigFile, RoundTrips) {
  TrainOptions options;
  options.data.paths = {"a \"b\"", "c\\d", "\xC3\xA9"};
  options.model.set(&model::GptConfig::n_embd, 384);
  options.optimizer.matrix_lr = 0.1 + 0.2;  // needs 17 digits
  options.batch.target_flops = 1e18;
  options.capture.graph = false;
  options.seed = 18446744073709551615U;
  options.evaluation.every = -1;
  options.model.preset = trainer::ModelPreset::kPlain;
  options.model.set(&model::GptConfig::smear, true);
  options.model.set(&model::GptConfig::backout, false);
  options.model.set(&model::GptConfig::window_pattern, "SSL");
  options.numbers.weight_wire = DType::kBF16;
  options.numbers.embedding_state = DType::kBF16;
  options.numbers.master_weights = trainer::MasterWeights::kSplit;
  options.numbers.momentum_state = DType::kBF16;
  options.numbers.adam_state = DType::kBF16;
  options.numbers.attention = AttentionKernels::kOwn;
  options.numbers.deterministic = false;
  options.run.out = "elsewhere";
  test::TemporaryDirectory directory;
  const auto file = directory.path() / "c.toml";
  test::write_file(file, trainer::config_text(trainer::option_table(options)));

  TrainOptions read;
  trainer::load_config(file, trainer::read_config(file), trainer::option_table(read));
  EXPECT_EQ(read.run.out, "") << "a run that repeats another must not write into its directory";
  read.run.out = options.run.out;
  EXPECT_THAT(trainer::config_text(trainer::option_table(options)),
              HasSubstr("# given as \"a \\\"b\\\"\", "));
  for (std::filesystem::path& path : options.data.paths)
    path = std::filesystem::absolute(path);
  EXPECT_EQ(read.data.paths, options.data.paths);
  const auto expected = trainer::option_table(options);
  const auto actual = trainer::option_table(read);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(trainer::option_text(actual[i]), trainer::option_text(expected[i]))
        << expected[i].name;
  EXPECT_EQ(read.optimizer.matrix_lr, options.optimizer.matrix_lr);
}

TEST(OptionTable, HasEachNameOnceAndDefaultsInRange) {
  TrainOptions options;
  std::vector<std::string_view> names;
  for (const trainer::OptionRow& row : trainer::option_table(options)) {
    EXPECT_EQ(testing::Value(names, testing::Contains(row.name)), false) << row.name;
    names.push_back(row.name);
    if (trainer::is_list(row)) continue;
    const std::vector<std::string> text = {trainer::option_text(row)};
    EXPECT_NO_THROW(trainer::set_option(row, text, row.name)) << row.name;
  }
  for (const trainer::OptionRow& row : trainer::option_table(options))
    for (const std::string_view replaced : row.replaces)
      EXPECT_THAT(names, testing::Contains(replaced));
}

TEST(NearestName, FindsTyposAndPartsButNothingUnrelated) {
  const std::vector<std::string_view> names = {"depth", "devices", "matrix-lr", "embedding-lr"};
  EXPECT_EQ(trainer::nearest_name("dpeth", names), "depth");
  EXPECT_EQ(trainer::nearest_name("device", names), "devices");
  EXPECT_EQ(trainer::nearest_name("embeding-lr", names), "embedding-lr");
  EXPECT_EQ(trainer::nearest_name("embedding", names), "embedding-lr");
  EXPECT_EQ(trainer::nearest_name("quux", names), "");
}

}  // namespace
}  // namespace muo::cli
