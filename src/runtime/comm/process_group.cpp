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

constexpr std::size_t kMostMessage = GroupFrame::kMostBytes - (std::size_t{64} << 10);
constexpr int kInputErrorCode = 2;
constexpr milliseconds kToFreeAPort(5000);  // of a run before this one, which ends
constexpr std::chrono::seconds kToSayHello(10);
constexpr milliseconds kSlice(25);  // how often who waits looks whether its rank was stopped

GroupMember this_process(int ranks) {
  return {.host = host_name(), .pid = ::getpid(), .ranks = ranks};
}

}  // namespace

// One call, from here to the scope's end, within the lock.
class ProcessGroup::Impl::Meeting {
 public:
  Meeting(Impl& group, Channel channel, const std::string& call)
      : frame{.type = Type::kMeeting,
              .channel = static_cast<std::uint8_t>(channel),
              .site = call,
              .payload = {}},
        line_(group.lines_[frame.channel]) {
    group.throw_if_failed();
    MUO_CHECK(!group.left_, call, " of processes that have left");
    MUO_CHECK(!line_.meeting, call, " by two threads on one channel");
    line_.meeting = true;
    frame.number = line_.meetings++;
  }
  ~Meeting() { line_.meeting = false; }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  GroupFrame frame;  // this process' part

 private:
  Line& line_;
};

ProcessGroup::Impl::Impl(const ProcessGroupOptions& options)
    : options_(options),
      period_(std::max<Duration>(std::min(options.beat, options.silence / 4) / 2, milliseconds(1))),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      members_(std::max(options.processes, 1)),
      peers_(static_cast<std::size_t>(members_.processes())) {
  MUO_CHECK(options.process >= 0 && options.process < options.processes, "process ",
            options.process, " of ", options.processes);
  MUO_CHECK(options.ranks > 0 && (options.processes == 1 || options.secret));
  MUO_CHECK(options.silence >= 2 * options.beat, "beats of ", seconds_text(options.beat),
            ", and silence of ", seconds_text(options.silence));
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
  if (teller_.joinable()) teller_.join();
}

void ProcessGroup::Impl::start() {
  members_.add(options_.process, this_process(options_.ranks));
  if (options_.processes == 1) {
    complete_ = true;
    return;
  }
  if (is_first()) {
    std::string secret = options_.secret();
    reception_.emplace(listen_at(options_.address, options_.port,
                                 std::min<milliseconds>(options_.patience, kToFreeAPort)),
                       std::move(secret), std::min<Duration>(options_.silence, kToSayHello));
  } else {
    JoinedGroup joined = join_group(options_.address, options_.port,
                                    {.process = options_.process,
                                     .processes = options_.processes,
                                     .member = members_.all().front()},
                                    options_.secret, options_.patience);
    peer(0).connection = std::move(joined.connection);
    for (GroupFrame& frame : joined.frames)
      MUO_CHECK(take(0, std::move(frame)), "protocol violation by process 0");
  }
  thread_ = start_thread([this] {
    block_signals_from_outside();
    work();
  });
  Lock lock(mutex_);
  RunningTime time(kSlice);
  for (Duration waited{0}; !complete_ && !failure_; waited += time.lap()) {
    if (is_first() && waited >= options_.patience)
      set_failure({.cause = missing_text()}, true);
    else
      changed_.wait_for(lock, kSlice);
  }
  if (complete_) return;  // meetings hear of a failure that came right after it
  if (failure_->exit_code == kInputErrorCode) throw InputError(failure_->cause);
  throw Error(failure_->cause);
}

std::string ProcessGroup::Impl::missing_text() const {
  const ListeningSockets& listening = reception_->listening();
  std::string text = concat("after ", seconds_text(options_.patience), " ", members_.missing(),
                            " to ", endpoint_text(options_.address, options_.port));
  if (!listening.where.empty()) text += concat(" (", listening.where, ")");
  if (listening.only_this_host) text += ", which no other host reaches";
  if (const int strangers = reception_->turned_away(); strangers > 0)
    text += concat("; ", strangers, " that did not know the launch's secret ",
                   strangers == 1 ? "was" : "were", " turned away");
  return text + ": are they running, with this address, port and secret?";
}

void ProcessGroup::Impl::wait(Lock& lock, const std::function<bool()>& ready) {
  if (ready()) return;
  const RankProgress::Scope waiting(Activity::kPeers);
  // What has all come is complete, even if somebody failed right after it.
  while (!ready()) {
    throw_if_failed();
    MUO_CHECK(!left_, "a meeting of processes that have left");
    changed_.wait_for(lock, kSlice);
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

// The first that process 0 hears of is the world's; to it all others report theirs.
void ProcessGroup::Impl::set_failure(GroupFailure failure, bool ours) {
  if (failure_ || left_ || closing_) return;
  failure_ = std::move(failure);
  ours_ = ours;
  send_all({.type = Type::kFailure, .payload = encode(*failure_)});
  changed_.notify_all();
  wake();
}

// Whether the next part of `process` is there, and is one of this meeting.
bool ProcessGroup::Impl::part_has_come(const Meeting& meeting, int process) {
  std::deque<GroupFrame>& parts = peer(process).parts[meeting.frame.channel];
  while (!parts.empty() && parts.front().number < meeting.frame.number)
    parts.pop_front();  // of a meeting that was given up
  if (parts.empty() && !peer(process).left) return false;
  const std::string there = parts.empty() ? "has left" : "is in " + parts.front().site;
  if (!parts.empty() && parts.front().site == meeting.frame.site) return true;
  set_failure(
      {.cause = concat("processes do not meet: ", members_.describe(options_.process), " is in ",
                       meeting.frame.site, ", ", members_.describe(process), " ", there)},
      false);
  return false;
}

// In process 0.
bool ProcessGroup::Impl::all_have_come(const Meeting& meeting) {
  bool all = true;
  for (int process = 1; process < options_.processes; ++process)
    all = part_has_come(meeting, process) && all;
  return all;
}

std::string ProcessGroup::Impl::take_part(const Meeting& meeting, int process) {
  std::deque<GroupFrame>& parts = peer(process).parts[meeting.frame.channel];
  std::string part = std::move(parts.front().payload);
  parts.pop_front();
  return part;
}

std::string ProcessGroup::Impl::from_first(Channel channel, const std::string& call,
                                           const std::function<std::string()>& make) {
  Lock lock(mutex_);
  Meeting meeting(*this, channel, call);
  if (!is_first()) {
    send_all(meeting.frame);
    wait(lock, [&] { return part_has_come(meeting, 0); });
    return take_part(meeting, 0);
  }
  wait(lock, [&] { return all_have_come(meeting); });
  for (int process = 1; process < options_.processes; ++process)
    take_part(meeting, process);
  lock.unlock();
  std::string made;
  try {
    made = make();
    MUO_CHECK(made.size() <= kMostMessage, call, " of ", made.size(), " bytes");
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  meeting.frame.payload = made;
  send_all(meeting.frame);
  return made;
}

std::vector<std::string> ProcessGroup::Impl::to_first(Channel channel, const std::string& call,
                                                      std::string mine) {
  MUO_CHECK(mine.size() <= kMostMessage, call, " of ", mine.size(), " bytes");
  Lock lock(mutex_);
  Meeting meeting(*this, channel, call);
  if (!is_first()) {
    meeting.frame.payload = std::move(mine);
    send_all(meeting.frame);
    return {};
  }
  wait(lock, [&] { return all_have_come(meeting); });
  std::vector<std::string> all = {std::move(mine)};
  for (int process = 1; process < options_.processes; ++process)
    all.push_back(take_part(meeting, process));
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

// Who leaves while another waits for it would keep that one waiting.
bool ProcessGroup::Impl::all_have_left() {
  bool all = true;
  for (int process = 1; process < options_.processes; ++process) {
    all = all && peer(process).left;
    for (std::size_t channel = 0; channel < kChannels; ++channel)
      if (!lines_[channel].meeting && !peer(process).parts[channel].empty())
        set_failure({.cause = concat("processes do not meet: ", members_.describe(0), " has left, ",
                                     members_.describe(process), " is in ",
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

void ProcessGroup::Impl::on_failure(OnFailure told) {
  const std::lock_guard calls(told_mutex_);
  told_ = std::move(told);
  tell_now();
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

std::string ProcessGroup::from_first(Channel channel, std::string_view site,
                                     const std::function<std::string()>& make) {
  return impl_->from_first(channel, concat("from_first(\"", site, "\")"), make);
}

std::vector<std::string> ProcessGroup::to_first(Channel channel, std::string_view site,
                                                std::string mine) {
  return impl_->to_first(channel, concat("to_first(\"", site, "\")"), std::move(mine));
}

void ProcessGroup::meet(Channel channel, std::string_view site) {
  static_cast<void>(
      impl_->from_first(channel, concat("meet(\"", site, "\")"), [] { return std::string(); }));
}

void ProcessGroup::fail(const std::string& cause, int exit_code) noexcept {
  impl_->fail(cause, exit_code);
}
milliseconds ProcessGroup::share_idle_time(milliseconds here) {
  return impl_->share_idle_time(here);
}
void ProcessGroup::on_failure(OnFailure told) { impl_->on_failure(std::move(told)); }
void ProcessGroup::leave() { impl_->leave(); }

}  // namespace muo
