#include "runtime/comm/process_group.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/host_name.h"
#include "base/system_error_text.h"
#include "base/threads.h"
#include "runtime/comm/process_group_impl.h"
#include "runtime/rank_progress.h"
#include "runtime/rendezvous.h"

namespace muo {
namespace {

using std::chrono::milliseconds;
using Type = GroupFrame::Type;

constexpr std::size_t kMaxMessage = GroupFrame::kMaxBytes - (std::size_t{64} << 10);
constexpr int kInputErrorCode = 2;
constexpr milliseconds kPortTimeout(5000);  // held by an earlier run that is ending
constexpr std::chrono::seconds kHelloTimeout(10);
constexpr milliseconds kPollInterval(25);  // between checks for a stop of a waiting rank

GroupMember this_process(int ranks) {
  return {.host = host_name(), .pid = ::getpid(), .ranks = ranks};
}

}  // namespace

// One collective call; in progress until the scope ends. Constructed and destroyed with the lock
// held.
class ProcessGroup::Impl::GroupCall {
 public:
  GroupCall(Impl& group, Channel channel, const std::string& call)
      : frame{.type = Type::kCall,
              .channel = static_cast<std::uint8_t>(channel),
              .site = call,
              .payload = {}},
        channel_(group.channels_[frame.channel]) {
    group.throw_if_failed();
    MUO_CHECK(!group.left_, call, " after leave()");
    MUO_CHECK(!channel_.in_call, call, " by two threads at once on one channel");
    channel_.in_call = true;
    frame.number = channel_.calls++;
  }
  ~GroupCall() { channel_.in_call = false; }
  GroupCall(const GroupCall&) = delete;
  GroupCall& operator=(const GroupCall&) = delete;

  GroupFrame frame;  // this process' part

 private:
  ChannelState& channel_;
};

ProcessGroup::Impl::Impl(const ProcessGroupOptions& options)
    : options_(options),
      period_(std::max<Duration>(std::min(options.heartbeat, options.heartbeat_timeout / 4) / 2,
                                 milliseconds(1))),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      members_(std::max(options.processes, 1)),
      peers_(static_cast<std::size_t>(members_.processes())) {
  MUO_CHECK(options.process >= 0 && options.process < options.processes, "process ",
            options.process, " of ", options.processes);
  MUO_CHECK(options.ranks > 0 && (options.processes == 1 || options.secret));
  MUO_CHECK(options.heartbeat_timeout >= 2 * options.heartbeat, "heartbeat_timeout ",
            seconds_text(options.heartbeat_timeout), " is less than two periods of ",
            seconds_text(options.heartbeat));
  MUO_CHECK(wake_, "eventfd: ", system_error_text(errno));
}

ProcessGroup::Impl::~Impl() {
  if (thread_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      wake();
    }
    thread_.join();
  }
  if (notifier_.joinable()) notifier_.join();
}

void ProcessGroup::Impl::start() {
  members_.add(options_.process, this_process(options_.ranks));
  if (options_.processes == 1) {
    complete_ = true;
    return;
  }
  if (is_first()) {
    std::string secret = options_.secret();
    acceptor_.emplace(listen_at(options_.address, options_.port,
                                std::min<milliseconds>(options_.join_timeout, kPortTimeout)),
                      std::move(secret),
                      std::min<Duration>(options_.heartbeat_timeout, kHelloTimeout));
  } else {
    JoinedGroup joined = join_group(options_.address, options_.port,
                                    {.process = options_.process,
                                     .processes = options_.processes,
                                     .member = members_.all().front()},
                                    options_.secret, options_.join_timeout);
    peer(0).connection = std::move(joined.connection);
    for (GroupFrame& frame : joined.frames)
      MUO_CHECK(take(0, std::move(frame)), "protocol violation by process 0");
  }
  thread_ = start_thread([this] {
    block_signals_from_outside();
    work();
  });
  Lock lock(mutex_);
  RunningTime time(kPollInterval);
  for (Duration waited{0}; !complete_ && !failure_; waited += time.elapsed()) {
    if (is_first() && waited >= options_.join_timeout)
      set_failure({.cause = missing_text()}, true);
    else
      changed_.wait_for(lock, kPollInterval);
  }
  if (complete_) return;  // a failure right after it is thrown by the next call
  if (failure_->exit_code == kInputErrorCode) throw InputError(failure_->cause);
  throw Error(failure_->cause);
}

std::string ProcessGroup::Impl::missing_text() const {
  const ListeningSockets& listening = acceptor_->listening();
  std::string text = concat("after ", seconds_text(options_.join_timeout), " ", members_.missing(),
                            " to ", endpoint_text(options_.address, options_.port));
  if (!listening.where.empty()) text += concat(" (", listening.where, ")");
  if (listening.only_this_host) text += ", which no other host can reach";
  if (const int rejected = acceptor_->rejected(); rejected > 0)
    text += concat("; rejected ", rejected, rejected == 1 ? " connection" : " connections",
                   " without the launch's secret");
  return text + ": are they running, with this address, port and secret?";
}

void ProcessGroup::Impl::wait(Lock& lock, const std::function<bool()>& ready) {
  if (ready()) return;
  const RankProgress::Scope waiting(Activity::kPeers);
  // A complete call succeeds, even if a process failed right after it.
  while (!ready()) {
    throw_if_failed();
    MUO_CHECK(!left_, "a call after leave()");
    changed_.wait_for(lock, kPollInterval);
    RankProgress::check();
  }
}

void ProcessGroup::Impl::throw_if_failed() const {
  if (!failure_) return;
  if (failure_->exit_code == kInputErrorCode) throw InputError(failure_->cause);
  throw PeerFailed(failure_->cause);
}

void ProcessGroup::Impl::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.number(), &one, sizeof(one)));
}

void ProcessGroup::Impl::send_all(const GroupFrame& frame) {
  bool all_sent = true;
  for (Peer& peer : peers_)
    if (peer.connection) {
      peer.connection->send(frame);
      all_sent = all_sent && !peer.connection->has_unsent();
    }
  if (!all_sent) wake();
}

// The first failure that process 0 receives is the world's; all others report theirs to it.
void ProcessGroup::Impl::set_failure(GroupFailure failure, bool ours) {
  if (failure_ || left_ || closing_) return;
  failure_ = std::move(failure);
  ours_ = ours;
  send_all({.type = Type::kFailure, .payload = encode(*failure_)});
  changed_.notify_all();
  wake();
}

// True if the next part of `process` has arrived and belongs to this call.
bool ProcessGroup::Impl::part_arrived(const GroupCall& group_call, int process) {
  std::deque<GroupFrame>& parts = peer(process).parts[group_call.frame.channel];
  while (!parts.empty() && parts.front().number < group_call.frame.number)
    parts.pop_front();  // part of an abandoned call
  if (parts.empty() && !peer(process).left) return false;
  const std::string there = parts.empty() ? "has left" : "is in " + parts.front().site;
  if (!parts.empty() && parts.front().site == group_call.frame.site) return true;
  set_failure({.cause = concat(
                   "processes call different collectives: ", members_.describe(options_.process),
                   " is in ", group_call.frame.site, ", ", members_.describe(process), " ", there)},
              false);
  return false;
}

// In process 0 only.
bool ProcessGroup::Impl::all_arrived(const GroupCall& group_call) {
  bool all = true;
  for (int process = 1; process < options_.processes; ++process)
    all = part_arrived(group_call, process) && all;
  return all;
}

std::string ProcessGroup::Impl::take_part(const GroupCall& group_call, int process) {
  std::deque<GroupFrame>& parts = peer(process).parts[group_call.frame.channel];
  std::string part = std::move(parts.front().payload);
  parts.pop_front();
  return part;
}

std::string ProcessGroup::Impl::broadcast(Channel channel, const std::string& call,
                                          const std::function<std::string()>& make) {
  Lock lock(mutex_);
  GroupCall group_call(*this, channel, call);
  if (!is_first()) {
    send_all(group_call.frame);
    wait(lock, [&] { return part_arrived(group_call, 0); });
    return take_part(group_call, 0);
  }
  wait(lock, [&] { return all_arrived(group_call); });
  for (int process = 1; process < options_.processes; ++process)
    take_part(group_call, process);
  lock.unlock();
  std::string made;
  try {
    made = make();
    MUO_CHECK(made.size() <= kMaxMessage, call, " of ", made.size(), " bytes");
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  group_call.frame.payload = made;
  send_all(group_call.frame);
  return made;
}

std::vector<std::string> ProcessGroup::Impl::gather(Channel channel, const std::string& call,
                                                    std::string mine) {
  MUO_CHECK(mine.size() <= kMaxMessage, call, " of ", mine.size(), " bytes");
  Lock lock(mutex_);
  GroupCall group_call(*this, channel, call);
  if (!is_first()) {
    group_call.frame.payload = std::move(mine);
    send_all(group_call.frame);
    return {};
  }
  wait(lock, [&] { return all_arrived(group_call); });
  std::vector<std::string> all = {std::move(mine)};
  for (int process = 1; process < options_.processes; ++process)
    all.push_back(take_part(group_call, process));
  return all;
}

void ProcessGroup::Impl::fail(const std::string& cause, int exit_code) {
  const std::lock_guard lock(mutex_);
  set_failure({.cause = cause, .exit_code = exit_code}, true);
}

milliseconds ProcessGroup::Impl::share_idle_time(milliseconds here) {
  const std::lock_guard lock(mutex_);
  idle_ = here;
  milliseconds least = is_first() ? milliseconds::max() : milliseconds::zero();
  for (const Peer& other : peers_)
    if (other.connection && !other.left) least = std::min(least, other.idle);
  return least;
}

// If one process leaves while another waits in a call, that call would never end: a failure.
bool ProcessGroup::Impl::all_have_left() {
  bool all = true;
  for (int process = 1; process < options_.processes; ++process) {
    all = all && peer(process).left;
    for (std::size_t channel = 0; channel < kChannels; ++channel)
      if (!channels_[channel].in_call && !peer(process).parts[channel].empty())
        set_failure({.cause = concat("processes call different collectives: ", members_.describe(0),
                                     " has left, ", members_.describe(process), " is in ",
                                     peer(process).parts[channel].front().site)},
                    false);
  }
  return all && !failure_;
}

void ProcessGroup::Impl::leave() {
  Lock lock(mutex_);
  if (left_) return;
  throw_if_failed();
  const GroupFrame bye = {.type = Type::kBye};
  if (is_first()) {
    wait(lock, [&] { return all_have_left(); });
    left_ = true;
    send_all(bye);
  } else {
    send_all(bye);
    wait(lock, [&] { return left_; });
  }
}

void ProcessGroup::Impl::on_failure(OnFailure callback) {
  const std::lock_guard calls(callback_mutex_);
  callback_ = std::move(callback);
  notify_now();
}

ProcessGroup::ProcessGroup(const ProcessGroupOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
  impl_->start();
}
ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::process() const { return impl_->process(); }
int ProcessGroup::processes() const { return impl_->members().processes(); }
int ProcessGroup::world() const { return impl_->members().world(); }
RankRange ProcessGroup::ranks_of(int process) const { return impl_->members().ranks_of(process); }
int ProcessGroup::process_of(int rank) const { return impl_->members().process_of(rank); }
int ProcessGroup::processes_here() const {
  return impl_->members().processes_on_host_of(process());
}
std::string ProcessGroup::describe(int process) const { return impl_->members().describe(process); }

std::string ProcessGroup::broadcast(Channel channel, std::string_view site,
                                    const std::function<std::string()>& make) {
  return impl_->broadcast(channel, concat("broadcast(\"", site, "\")"), make);
}

std::vector<std::string> ProcessGroup::gather(Channel channel, std::string_view site,
                                              std::string mine) {
  return impl_->gather(channel, concat("gather(\"", site, "\")"), std::move(mine));
}

void ProcessGroup::barrier(Channel channel, std::string_view site) {
  static_cast<void>(
      impl_->broadcast(channel, concat("barrier(\"", site, "\")"), [] { return std::string(); }));
}

void ProcessGroup::fail(const std::string& cause, int exit_code) noexcept {
  impl_->fail(cause, exit_code);
}
milliseconds ProcessGroup::share_idle_time(milliseconds here) {
  return impl_->share_idle_time(here);
}
void ProcessGroup::on_failure(OnFailure callback) { impl_->on_failure(std::move(callback)); }
void ProcessGroup::leave() { impl_->leave(); }

}  // namespace muo
