#include "runtime/comm/group_members.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace muo {

const std::optional<GroupMember>& GroupMembers::at(int process) const {
  MUO_CHECK(process >= 0 && process < processes(), "process ", process, " of ", processes());
  return members_[static_cast<std::size_t>(process)];
}

std::string GroupMembers::objection_to(const GroupHello& hello) const {
  if (!hello.same_version)
    return "process 0 is a muograph of another version: start the same one everywhere";
  const std::string who = concat("process ", hello.process, " (on ", hello.member.host, ", pid ",
                                 hello.member.pid, ")");
  if (hello.processes != processes())
    return concat(who, " was started as one of ", hello.processes, ", and process 0 as one of ",
                  processes(), ": give all the same number of processes");
  if (hello.process < 1 || hello.process >= processes())
    return concat(who, " of ", processes(), " is out of range: they are numbered from 0 to ",
                  processes() - 1);
  if (at(hello.process))
    return concat(who, " has joined already, as ", describe(hello.process),
                  ": give each process a number of its own");
  return {};
}

void GroupMembers::add(int process, GroupMember member) {
  members_[static_cast<std::size_t>(process)] = std::move(member);
}

bool GroupMembers::set(const std::vector<GroupMember>& members) {
  if (members.size() != members_.size()) return false;
  std::ranges::copy(members, members_.begin());
  return true;
}

std::vector<GroupMember> GroupMembers::all() const {
  std::vector<GroupMember> all;
  for (const std::optional<GroupMember>& member : members_)
    if (member) all.push_back(*member);
  return all;
}

std::string GroupMembers::describe(int process) const {
  const std::optional<GroupMember>& member = at(process);
  if (!member) return concat("process ", process);
  std::string ranks;
  if (complete()) {
    const RankRange range = ranks_of(process);
    ranks = range.count == 1 ? concat("rank ", range.first, ", ")
                             : concat("ranks ", range.first, " to ", range.end() - 1, ", ");
  }
  return concat("process ", process, " (", ranks, "on ", member->host, ", pid ", member->pid, ")");
}

std::string GroupMembers::missing() const {
  std::vector<int> numbers;
  for (int process = 0; process < processes(); ++process)
    if (!at(process)) numbers.push_back(process);
  std::string list;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    list += concat(i == 0 ? "" : i + 1 == numbers.size() ? " and " : ", ", numbers[i]);
  const bool one = numbers.size() == 1;
  return concat(one ? "process " : "processes ", list, " of ", processes(),
                one ? " has not connected" : " have not connected");
}

RankRange GroupMembers::ranks_of(int process) const {
  RankRange range{.first = 0, .count = at(process)->ranks};
  for (int before = 0; before < process; ++before)
    range.first += at(before)->ranks;
  return range;
}

int GroupMembers::process_of(int rank) const {
  MUO_CHECK(rank >= 0 && rank < world(), "rank ", rank, " of ", world());
  int process = 0;
  while (!ranks_of(process).contains(rank))
    ++process;
  return process;
}

int GroupMembers::processes_on_host_of(int process) const {
  return static_cast<int>(std::ranges::count_if(
      members_, [&](const auto& member) { return member->host == at(process)->host; }));
}

}  // namespace muo
