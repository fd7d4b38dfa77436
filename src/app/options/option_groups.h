#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "app/options/option_table.h"

namespace muo {

// What the tables of several commands share.

// Bounds that keep every product of sizes in 64 bits; what a machine can hold is far below.
inline constexpr double kMostSteps = 1LL << 40;
inline constexpr double kMostTokens = 1LL << 40;
inline constexpr double kMostRows = 1 << 20;
inline constexpr double kMostVocab = 1 << 24;

inline constexpr std::string_view kDataGroup = "Data";
inline constexpr std::string_view kDevicesGroup = "Devices";
inline constexpr std::string_view kRunGroup = "Run directory, evaluation, checkpoints";
// Groups of options that tell what is trained: what changes in them at --resume is listed.
inline constexpr std::string_view kBatchGroup = "Batch and length";
inline constexpr std::string_view kOptimizerGroup = "Optimizer";
inline constexpr std::string_view kGuardGroup = "Numerics guard";
inline constexpr std::array kTrainingGroups = {kBatchGroup, kOptimizerGroup, kGuardGroup};

// --backend, --devices, --ranks-per-device, --comm.
std::vector<OptionRow> device_rows(DeviceOptions& o, OptionClass kind);

}  // namespace muo
