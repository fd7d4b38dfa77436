#include "base/check.h"
#include "contract/backend_contract.h"
#include "kernels/residual.h"

namespace muo::test {
namespace {

class StreamContract : public BackendContract {};
MUO_FOR_EVERY_BACKEND(StreamContract);

TEST_P(StreamContract, WorkOnOneStreamRunsInOrder) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, Floats{1, 2, 3});
    const DeviceVector<float> b(rank, Floats{7, 7, 7});
    rank.compute.copy(b, a);
    rank.compute.zero(a);
    EXPECT_EQ(b.get(), (Floats{1, 2, 3}));
    EXPECT_EQ(a.get(), (Floats{0, 0, 0}));
  });
}

TEST_P(StreamContract, AnEventOrdersTwoStreams) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, Floats{1, 2});
    const DeviceVector<float> b(rank, 2);
    const DeviceVector<float> c(rank, 2);
    const auto copied = rank.device.make_event();
    rank.compute.copy(b, a);
    rank.compute.record(*copied);
    rank.comm.wait(*copied);
    rank.comm.copy(c, b);
    rank.comm.record(*copied);
    copied->synchronize();
    EXPECT_EQ(c.get(), (Floats{1, 2}));
  });
}

TEST_P(StreamContract, ACopyOfAnotherSizeOrTypeIsAnError) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, 4);
    const DeviceVector<float> b(rank, 5);
    const DeviceVector<std::int32_t> c(rank, 4);
    EXPECT_THROW(rank.compute.copy(a, b), Error);
    EXPECT_THROW(rank.compute.copy(a, c), Error);
    EXPECT_THROW(rank.compute.copy(b.tensor().elements(0, 4), b.tensor().elements(1, 4)), Error);
    EXPECT_NO_THROW(rank.compute.copy(a, b.tensor().elements(1, 4)));
  });
}

TEST_P(StreamContract, CaptureRunsNothingAndAReplayReadsItsInputsAnew) {
  run(1, [](RankContext& rank) {
    DeviceVector<float> a(rank, Floats{1, 2});
    const DeviceVector<float> b(rank, Floats{5, 5});
    const auto graph = rank.compute.capture([&] { rank.compute.copy(b, a); });
    EXPECT_EQ(b.get(), (Floats{5, 5}));
    for (const float value : {3.0F, 4.0F}) {
      a.set({value, value});
      rank.compute.launch(*graph);
      EXPECT_EQ(b.get(), (Floats{value, value}));
    }
  });
}

TEST_P(StreamContract, AForkAndJoinBecomesOneGraph) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, Floats{1, 2});
    const DeviceVector<float> b(rank, 2);
    const DeviceVector<float> c(rank, 2);
    const auto fork = rank.device.make_event();
    const auto join = rank.device.make_event();
    const auto graph = rank.compute.capture([&] {
      rank.compute.copy(b, a);
      rank.compute.record(*fork);
      rank.comm.wait(*fork);
      rank.comm.copy(c, b);
      rank.comm.record(*join);
      rank.compute.wait(*join);
      rank.compute.zero(b);
    });
    rank.compute.launch(*graph);
    EXPECT_EQ(c.get(), (Floats{1, 2}));
    EXPECT_EQ(b.get(), (Floats{0, 0}));
    const auto& nodes = graph->trace().nodes;
    ASSERT_EQ(nodes.size(), 3U);
    EXPECT_EQ(nodes[0].stream, nodes[2].stream);
    EXPECT_NE(nodes[0].stream, nodes[1].stream);
    EXPECT_EQ(nodes[0].after, std::vector<std::uint32_t>{});
    EXPECT_EQ(nodes[1].after, std::vector<std::uint32_t>{0});
    EXPECT_EQ(nodes[2].after, (std::vector<std::uint32_t>{0, 1}));
    ASSERT_EQ(nodes[1].accesses.size(), 2U);
    for (const Access& access : nodes[1].accesses) {
      EXPECT_EQ(access.data, access.write ? c.tensor().data : b.tensor().data);
      EXPECT_EQ(access.bytes, 8);
    }
  });
}

// A loop's counter in device memory.
class Passes {
 public:
  explicit Passes(RankContext& rank) : values_(rank, std::vector<std::int64_t>{-1, -1}) {}
  void set(std::int64_t count) { values_.set({-1, count}); }
  [[nodiscard]] LoopCounter counter() const {
    return {.passes = values_.tensor().elements(0, 1), .count = values_.tensor().elements(1, 1)};
  }
  [[nodiscard]] std::int64_t made() const { return values_.get().front(); }

 private:
  DeviceVector<std::int64_t> values_;
};

TEST_P(StreamContract, ALoopMakesAsManyPassesAsItsCounterSaysAtEachReplay) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, Floats{1, 2});
    const DeviceVector<float> b(rank, 2);
    const DeviceVector<float> c(rank, 2);
    const DeviceVector<float> after(rank, 2);
    Passes passes(rank);
    const auto fork = rank.device.make_event();
    const auto join = rank.device.make_event();
    const auto work = [&](std::int64_t count) {
      rank.compute.record(*fork);
      rank.comm.wait(*fork);  // before, in and after the loop
      rank.comm.zero(b);
      rank.comm.record(*join);
      rank.compute.wait(*join);
      rank.compute.loop(passes.counter(), count, [&] {
        rank.compute.record(*fork);
        rank.comm.wait(*fork);
        rank.comm.copy(c, a);
        rank.comm.record(*join);
        rank.compute.wait(*join);
        add(rank.compute, {.y = b, .x = c});
      });
      rank.compute.record(*fork);
      rank.comm.wait(*fork);
      rank.comm.copy(after, b);
      rank.comm.record(*join);
      rank.compute.wait(*join);
    };
    const auto expect = [&](std::int64_t count) {
      const auto n = static_cast<float>(count);
      EXPECT_EQ(after.get(), (Floats{n, 2 * n}));
      EXPECT_EQ(passes.made(), count);
    };
    passes.set(3);
    work(3);
    expect(3);
    const auto graph = rank.compute.capture([&] { work(0); });
    for (const std::int64_t count : {5, 1, 0, 2}) {
      passes.set(count);
      rank.compute.launch(*graph);
      expect(count);
    }
    const GraphTrace& trace = graph->trace();
    ASSERT_EQ(trace.loops.size(), 1U);
    EXPECT_EQ(trace.nodes[trace.loops[0].begin - 1].name, "begin_loop");
    EXPECT_EQ(trace.nodes[trace.loops[0].begin].name, "copy");
    EXPECT_EQ(trace.nodes[trace.loops[0].end - 1].name, "end_pass");
    EXPECT_EQ(trace.nodes[trace.loops[0].end].name, "copy");
  });
}

// Each one violates a rule while `rank.compute` captures.
struct Mistake {
  const char* name;
  void (*make)(RankContext& rank, const DeviceVector<float>& vector, Event& event, Graph& other);
};
constexpr Mistake kMistakes[] = {
    {"an unjoined branch",
     [](RankContext& rank, const DeviceVector<float>& vector, Event& event, Graph&) {
       rank.compute.record(event);
       rank.comm.wait(event);
       rank.comm.zero(vector);
     }},
    {"a body that throws",
     [](RankContext& rank, const DeviceVector<float>& vector, Event& event, Graph&) {
       rank.compute.record(event);
       rank.comm.wait(event);
       rank.comm.zero(vector);
       throw Error("the body's own error");
     }},
    {"synchronize", [](RankContext& rank, const DeviceVector<float>&, Event&,
                       Graph&) { rank.compute.synchronize(); }},
    {"launch", [](RankContext& rank, const DeviceVector<float>&, Event&,
                  Graph& other) { rank.compute.launch(other); }},
    {"a capture inside", [](RankContext& rank, const DeviceVector<float>&, Event&,
                            Graph&) { (void)rank.compute.capture([] {}); }},
    {"allocate", [](RankContext& rank, const DeviceVector<float>&, Event&,
                    Graph&) { (void)rank.device.allocate(256, "a mistake"); }},
    {"allocate_pinned", [](RankContext& rank, const DeviceVector<float>&, Event&,
                           Graph&) { (void)rank.device.allocate_pinned(256, "a mistake"); }},
    {"waiting for an event recorded outside",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, Graph&) {
       rank.compute.wait(event);
     }},
    {"synchronizing with an event of the capture",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, Graph&) {
       rank.compute.record(event);
       event.synchronize();
     }},
    {"synchronizing a stream that joined",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, Graph&) {
       rank.compute.record(event);
       rank.comm.wait(event);
       rank.comm.synchronize();
     }},
};

struct LoopMistake {
  const char* name;
  void (*make)(RankContext& rank, const DeviceVector<float>& vector, Event& event,
               const LoopCounter& counter);
};
constexpr LoopMistake kLoopMistakes[] = {
    {"a loop before which a branch is not joined",
     [](RankContext& rank, const DeviceVector<float>& vector, Event& event,
        const LoopCounter& counter) {
       rank.compute.record(event);
       rank.comm.wait(event);
       rank.comm.zero(vector);
       rank.compute.loop(counter, 1, [] {});
     }},
    {"a body of a loop in which a branch is not joined",
     [](RankContext& rank, const DeviceVector<float>& vector, Event& event,
        const LoopCounter& counter) {
       rank.compute.loop(counter, 1, [&] {
         rank.compute.record(event);
         rank.comm.wait(event);
         rank.comm.zero(vector);
       });
     }},
    {"a body of a loop that waits for an event from before",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, const LoopCounter& counter) {
       rank.compute.record(event);
       rank.compute.loop(counter, 1, [&] { rank.comm.wait(event); });
     }},
    {"waiting for an event of a loop's body",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, const LoopCounter& counter) {
       rank.compute.loop(counter, 1, [&] { rank.compute.record(event); });
       rank.comm.wait(event);
     }},
    {"a loop in a loop",
     [](RankContext& rank, const DeviceVector<float>&, Event&, const LoopCounter& counter) {
       rank.compute.loop(counter, 1, [&] { rank.compute.loop(counter, 1, [] {}); });
     }},
    {"a loop on a stream that joined",
     [](RankContext& rank, const DeviceVector<float>&, Event& event, const LoopCounter& counter) {
       rank.compute.record(event);
       rank.comm.wait(event);
       rank.comm.loop(counter, 1, [] {});
     }},
    {"a body of a loop that throws",
     [](RankContext& rank, const DeviceVector<float>&, Event&, const LoopCounter& counter) {
       rank.compute.loop(counter, 1, [] { throw Error("the body's own error"); });
     }},
};

TEST_P(StreamContract, AMistakeDiscardsTheCaptureAndLeavesEveryStreamUsable) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, Floats{1, 2});
    const DeviceVector<float> b(rank, Floats{5, 5});
    const auto event = rank.device.make_event();
    const auto other = rank.compute.capture([&] { rank.compute.copy(b, a); });
    const Passes passes(rank);
    const auto expect_discarded = [&](const char* name, const auto& make) {
      SCOPED_TRACE(name);
      rank.update.record(*event);
      EXPECT_THROW((void)rank.compute.capture([&] {
        rank.compute.zero(a);
        make();
      }),
                   Error);
      EXPECT_EQ(b.get(), (Floats{5, 5}));
      EXPECT_EQ(a.get(), (Floats{1, 2}));  // the discarded work did not run
      rank.comm.zero(b);                   // runs immediately, outside of any capture
      rank.comm.synchronize();
      EXPECT_EQ(b.get(), (Floats{0, 0}));
      const auto graph = rank.compute.capture([&] { rank.compute.copy(b, a); });
      EXPECT_EQ(graph->trace().nodes.size(), 1U);
      rank.compute.launch(*graph);
      EXPECT_EQ(b.get(), (Floats{1, 2}));
      rank.compute.zero(b);
      const DeviceVector<float> fives(rank, Floats{5, 5});
      rank.compute.copy(b, fives);
    };
    for (const Mistake& mistake : kMistakes)
      expect_discarded(mistake.name, [&] { mistake.make(rank, b, *event, *other); });
    for (const LoopMistake& mistake : kLoopMistakes)
      expect_discarded(mistake.name, [&] { mistake.make(rank, b, *event, passes.counter()); });
  });
}

// CUDA's own error is cleared, too: otherwise the SIMT tier makes the process fail at its end.
TEST_P(StreamContract, TheErrorOfABodyIsKept) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, 2);
    const auto event = rank.device.make_event();
    try {
      (void)rank.compute.capture([&] {
        rank.compute.record(*event);
        rank.comm.wait(*event);
        rank.comm.zero(a);
        throw InputError("mine");
      });
      ADD_FAILURE() << "no error";
    } catch (const InputError& error) {
      EXPECT_STREQ(error.what(), "mine");
    }
  });
}

TEST_P(StreamContract, AnEventOfAFinishedCaptureIsAnErrorInsideAndOutsideCaptures) {
  run(1, [](RankContext& rank) {
    const DeviceVector<float> a(rank, 2);
    const auto event = rank.device.make_event();
    (void)rank.compute.capture([&] {
      rank.compute.zero(a);
      rank.compute.record(*event);
    });
    EXPECT_THROW(rank.comm.wait(*event), Error);
    EXPECT_THROW(event->synchronize(), Error);
    const auto waits = [&] { rank.compute.wait(*event); };
    EXPECT_THROW((void)rank.compute.capture(waits), Error);
    rank.compute.record(*event);  // outside a capture: an ordinary event again
    EXPECT_NO_THROW(rank.comm.wait(*event));
    EXPECT_NO_THROW(event->synchronize());
  });
}

class DeviceContract : public BackendContract {};
MUO_FOR_EVERY_BACKEND(DeviceContract);

TEST_P(DeviceContract, MemoryIsAlignedZeroAndCounted) {
  run(1, [](RankContext& rank) {
    const std::int64_t before = rank.device.allocations();
    const auto memory = rank.device.allocate(1001, "memory");
    const auto pinned = rank.device.allocate_pinned(1001, "pinned memory");
    EXPECT_EQ(rank.device.allocations(), before + 2);
    for (const Buffer* buffer : {memory.get(), pinned.get()}) {
      EXPECT_EQ(buffer->bytes(), 1001);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % kAlignment, 0U);
    }
    std::fill_n(pinned->data(), 1001, std::byte{1});
    rank.compute.copy({pinned->data(), {1001}, DType::kBytes, -1},
                      {memory->data(), {1001}, DType::kBytes, rank.rank});
    rank.compute.synchronize();
    EXPECT_EQ(std::count(pinned->data(), pinned->data() + 1001, std::byte{0}), 1001);
  });
}

TEST_P(DeviceContract, AFailedAllocationSaysWhatAndHowMuch) {
  run(1, [](RankContext& rank) {
    try {
      (void)rank.device.allocate(std::int64_t{1} << 60, "a huge thing");
      ADD_FAILURE() << "an exbibyte";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("a huge thing"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(std::int64_t{1} << 60)), std::string::npos) << text;
    }
    EXPECT_THROW((void)rank.device.allocate(-1, "less than nothing"), Error);
  });
}

TEST_P(DeviceContract, AllocatingAfterStartUpIsAnError) {
  run(1, [](RankContext& rank) {
    (void)rank.device.allocate(256, "early");
    rank.device.seal();
    EXPECT_THROW((void)rank.device.allocate(256, "late"), Error);
    EXPECT_THROW((void)rank.device.allocate_pinned(256, "late"), Error);
  });
}

}  // namespace
}  // namespace muo::test
