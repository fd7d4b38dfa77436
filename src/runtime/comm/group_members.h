#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/group_frame.h"
#include "runtime/comm/process_group.h"

namespace muo {

// Members of a group of processes: those that have joined so far.
class GroupMembers {
 public:
  explicit GroupMembers(int processes) : members_(static_cast<std::size_t>(processes)) {}

  [[nodiscard]] int processes() const { return static_cast<int>(members_.size()); }
  // Reason to reject the process that sent this hello; empty: none.
  [[nodiscard]] std::string objection_to(const GroupHello& hello) const;
  void add(int process, GroupMember member);
  // False if the number of members differs.
  [[nodiscard]] bool set(const std::vector<GroupMember>& members);
  [[nodiscard]] std::vector<GroupMember> all() const;  // those that have joined
  [[nodiscard]] bool complete() const { return all().size() == members_.size(); }

  // "process 1 (ranks 2 to 3, on node-b, pid 4711)", without ranks until all have joined.
  [[nodiscard]] std::string describe(int process) const;
  // "processes 2 and 3 of 4 have not connected"
  [[nodiscard]] std::string missing() const;

  // Require that all have joined.
  [[nodiscard]] RankRange ranks_of(int process) const;
  [[nodiscard]] int process_of(int rank) const;
  [[nodiscard]] int world() const { return ranks_of(processes() - 1).end(); }
  [[nodiscard]] int processes_on_host_of(int process) const;

 private:
  [[nodiscard]] const std::optional<GroupMember>& at(int process) const;

  std::vector<std::optional<GroupMember>> members_;
};

}  // namespace muo
