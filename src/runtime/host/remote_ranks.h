#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/collective.h"
#include "runtime/comm/process_exchange.h"
#include "runtime/comm/process_group.h"

namespace muo {

// The processes that hold a world's ranks, and the exchange that connects them.
struct HostWorld {
  std::vector<RankRange> processes = {};  // ranks of each process, ascending
  int process = 0;                        // this one
  ProcessExchange* exchange = nullptr;    // null: there is one process

  [[nodiscard]] int ranks() const { return processes.back().end(); }
  [[nodiscard]] RankRange local() const { return processes[static_cast<std::size_t>(process)]; }
};

// Exchanges the contributions of ranks in other processes to collectives of this process' ranks.
// Values are sent unsummed, so that sums run in rank order, whatever the division into processes.
// One thread of each process calls, for all its ranks; calls are collective.
//
// `posts` has an entry per rank of the world. The caller sets those of local ranks; of the others
// only the tensors named below are set, flat, valid until the next exchange.
class RemoteRanks {
 public:
  explicit RemoteRanks(HostWorld world);
  ~RemoteRanks();
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  // mispairing() of all ranks' calls, with the same text in every process.
  std::string mispairing(std::span<const Collective> posts);
  // Sets `in` of each remote rank to the elements of its input, from first[rank], that local ranks
  // need.
  void exchange_inputs(std::span<Collective> posts, std::span<std::int64_t> first);
  // For all_reduce: sets `out` of each remote rank to its share of the sum, which begins at element
  // first[rank].
  void exchange_sums(std::span<Collective> posts, std::span<std::int64_t> first);

 private:
  struct Memory;

  template <class PieceOf>
  void exchange(std::span<Collective> posts, std::span<std::int64_t> first,
                Tensor Collective::*tensor, const PieceOf& piece_of);
  template <class PieceOf>
  void receive(std::span<Collective> posts, std::span<std::int64_t> first,
               Tensor Collective::*tensor, const PieceOf& piece_of);
  void send_to_others(std::span<const std::byte> bytes);
  void run_exchange();
  std::string text_of(int rank, std::span<const Collective> posts);
  template <class Visit>
  void for_each_other(const Visit& visit) const;

  const HostWorld world_;
  std::vector<ProcessExchange::Send> sends_;
  std::vector<ProcessExchange::Receive> receives_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace muo
