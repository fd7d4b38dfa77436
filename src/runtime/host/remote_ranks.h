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

// The processes that hold a world's ranks, and how this one reaches the others.
struct HostWorld {
  std::vector<RankRange> processes = {};  // in their order, from rank 0 to the last
  int process = 0;                        // this one
  ProcessExchange* exchange = nullptr;    // null: there is one process

  [[nodiscard]] int ranks() const { return processes.back().end(); }
  [[nodiscard]] RankRange local() const { return processes[static_cast<std::size_t>(process)]; }
};

// What ranks of other processes contribute to the collectives of this process' ranks. Values travel
// unsummed, so that sums run in rank order whatever the processes are. One thread calls for all
// local ranks, in every process alike.
//
// Posts are by rank, of the whole world. Those of local ranks are given; of the others' only the
// tensors named below are set, flat, valid until the next exchange.
class RemoteRanks {
 public:
  explicit RemoteRanks(HostWorld world);
  ~RemoteRanks();
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  // As mispairing() of all ranks' calls, and with the same text in every process.
  std::string mispairing(std::span<const Collective> posts);
  // Then `in` of a remote rank holds the elements of its input from first[rank] on that are needed
  // here.
  void exchange_inputs(std::span<Collective> posts, std::span<std::int64_t> first);
  // Of an all_reduce: then `out` of a remote rank holds its share of the sum, which begins at
  // element first[rank].
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
