#include "trainer/checkpoint/save_messages.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>

#include "base/json_text.h"

namespace muo::trainer {
namespace {

using nlohmann::json;

json json_of(const SaveResult& result) {
  return {{"step", result.step},
          {"failure", result.failure},
          {"is_write_error", result.is_write_error},
          {"failed_rank", result.failed_rank},
          {"bytes", result.bytes},
          {"seconds", result.seconds},
          {"notes", result.notes}};
}

SaveResult result_of(const json& value) {
  return {.step = value.at("step").get<std::int64_t>(),
          .failure = value.at("failure").get<std::string>(),
          .is_write_error = value.at("is_write_error").get<bool>(),
          .failed_rank = value.at("failed_rank").get<int>(),
          .bytes = value.at("bytes").get<std::int64_t>(),
          .seconds = value.at("seconds").get<double>(),
          .notes = value.at("notes").get<std::vector<std::string>>()};
}

// An array [name, dtype, extents]: a compact form, because there are hundreds of them.
json json_of(const SafetensorsSpec& spec) {
  return json::array({spec.name, static_cast<int>(spec.dtype), extents_of(spec.shape)});
}

SafetensorsSpec spec_of(const json& value) {
  return {.name = value.at(0).get<std::string>(),
          .dtype = static_cast<DType>(value.at(1).get<int>()),
          .shape = shape_of(value.at(2).get<std::vector<std::int64_t>>())};
}

}  // namespace

std::string pack_results(std::span<const SaveResult> results) {
  json all = json::array();
  for (const SaveResult& result : results)
    all.push_back(json_of(result));
  return json_text(all);
}

std::vector<SaveResult> unpack_results(std::string_view text) {
  std::vector<SaveResult> results;
  for (const json& value : json::parse(text))
    results.push_back(result_of(value));
  return results;
}

std::string pack_message(const SaveMessage& message) {
  json ranges = json::array();
  for (const CheckpointRange& range : message.ranges)
    ranges.push_back(json::array({json_of(range.spec), range.begin, range.end}));
  json tensors = json::array();
  for (const std::vector<SafetensorsSpec>& of_file : message.plan.tensors) {
    json& specs = tensors.emplace_back(json::array());
    for (const SafetensorsSpec& spec : of_file)
      specs.push_back(json_of(spec));
  }
  const json value = {{"result", json_of(message.result)},
                      {"ranges", std::move(ranges)},
                      {"directory", json_of_path(message.plan.directory)},
                      {"tensors", std::move(tensors)},
                      {"sums", message.sums}};
  return json_text(value);
}

SaveMessage unpack_message(std::string_view text) {
  const json value = json::parse(text);
  SaveMessage message{.result = result_of(value.at("result"))};
  for (const json& range : value.at("ranges"))
    message.ranges.push_back({.spec = spec_of(range.at(0)),
                              .begin = range.at(1).get<std::int64_t>(),
                              .end = range.at(2).get<std::int64_t>()});
  message.plan.directory = path_of_json(value.at("directory"));
  for (std::size_t f = 0; f < message.plan.tensors.size(); ++f)
    for (const json& spec : value.at("tensors").at(f))
      message.plan.tensors[f].push_back(spec_of(spec));
  message.sums = value.at("sums").get<CheckpointSums>();
  return message;
}

}  // namespace muo::trainer
