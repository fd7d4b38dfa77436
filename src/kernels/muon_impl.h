#pragma once

#include "kernels/muon.h"

namespace muo::host {
void muon_nesterov(const MuonNesterovArgs& args);
void muon_input(const MuonInputArgs& args);
void muon_scale(const MuonScaleArgs& args);
void muon_commit(const MuonCommitArgs& args);
}  // namespace muo::host
