#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/threads.h"
#include "runtime/graph_trace.h"
#include "runtime/host/host_device.h"
#include "support/errors.h"
#include "support/tensors.h"

namespace muo {
namespace {

using test::HostTensor;
using test::message_of;

// y <- scale * y + x: not commutative.
void scale_add(Stream& stream, std::string_view name, const Tensor& y, const Tensor& x,
               float scale) {
  const Access accesses[] = {{y.data, y.bytes(), true}, {x.data, x.bytes(), false}};
  stream.enqueue_host(name, accesses, [y, x, scale] {
    for (std::int64_t i = 0; i < y.numel(); ++i)
      y.as<float>()[i] = scale * y.as<float>()[i] + x.as<float>()[i];
  });
}

// A step with two streams: gradients on `compute`, their reduction on `comm`, then the update on
// `compute`. Each event can be left out.
struct ToyStep {
  HostDevice device;
  std::unique_ptr<Stream> compute = device.make_stream(StreamPriority::kNormal);
  std::unique_ptr<Stream> comm = device.make_stream(StreamPriority::kHigh);
  std::unique_ptr<Event> ready = device.make_event();
  std::unique_ptr<Event> reduced = device.make_event();
  HostTensor gradient = HostTensor({4}, std::vector<float>{1, 2, 3, 4});
  HostTensor sum{{4}};
  HostTensor weight = HostTensor({4}, std::vector<float>{1, 1, 1, 1});

  explicit ToyStep(const HostDeviceOptions& options) : device(0, options) {}

  std::unique_ptr<Graph> capture(bool wait_ready, bool wait_reduced) {
    return compute->capture([&] {
      compute->record(*ready);
      comm->wait(*ready);  // joins the capture, before the gradient is written
      scale_add(*compute, "backward", gradient, weight, 2.0F);
      compute->record(*ready);
      if (wait_ready) comm->wait(*ready);
      scale_add(*comm, "reduction", sum, gradient, 0.5F);
      comm->record(*reduced);
      if (wait_reduced) compute->wait(*reduced);
      scale_add(*compute, "update", weight, sum, 3.0F);
      compute->wait(*reduced);
    });
  }
  std::vector<float> train(bool wait_ready, bool wait_reduced) {
    const auto graph = capture(wait_ready, wait_reduced);
    for (int step = 0; step < 6; ++step)
      compute->launch(*graph);
    const auto values = weight.values();
    return {values.begin(), values.end()};
  }
};

TEST(HostGraph, AnyTopologicalOrderGivesTheSameResult) {
  const auto expected = ToyStep({}).train(true, true);
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(ToyStep({.random_order_seed = seed}).train(true, true), expected);
}

TEST(HostGraph, TimesItsNodesWhenAsked) {
  using namespace std::chrono_literals;
  for (const std::optional<std::uint64_t> order : {std::optional<std::uint64_t>{}, {3}}) {
    HostDevice device(0, {.random_order_seed = order});
    const auto stream = device.make_stream(StreamPriority::kNormal);
    const auto graph = stream->capture([&] {
      stream->enqueue_host("sleeps", {}, [] { std::this_thread::sleep_for(20ms); });
      stream->enqueue_host("works", {}, [] {
        const double begin = thread_seconds();
        while (thread_seconds() < begin + 10e-3) {
        }
      });
    });
    stream->launch(*graph);
    for (int i = 0; i < 2; ++i) {
      NodeSums sums(graph->trace());
      ASSERT_TRUE(graph->observe(&sums));
      stream->launch(*graph);
      stream->launch(*graph);
      graph->observe(nullptr);
      stream->launch(*graph);  // is not observed
      const NodeSums::Sum& sleeps = sums.of()[0];
      const NodeSums::Sum& works = sums.of()[1];
      EXPECT_EQ(sleeps.calls, 2);
      EXPECT_EQ(works.calls, 2);
      EXPECT_GE(sleeps.wall, 40e-3);
      EXPECT_LT(sleeps.thread, 5e-3);
      EXPECT_GE(works.thread, 20e-3);
      EXPECT_LT(works.thread, 25e-3);
      EXPECT_GE(works.wall, 19e-3);
    }
  }
}

// Only nodes of the same pass are shuffled.
TEST(HostGraph, ALoopsNodesRunInRandomOrderPassByPassAndAreTimed) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    HostDevice device(0, {.random_order_seed = seed});
    const auto stream = device.make_stream(StreamPriority::kNormal);
    const auto side = device.make_stream(StreamPriority::kNormal);
    const auto fork = device.make_event();
    const auto join = device.make_event();
    const HostTensor counter({2}, std::vector<std::int64_t>{7, 3});
    std::string order;
    const auto note = [&](Stream& on, char what) {
      on.enqueue_host("note", {}, [&order, what] { order += what; });
    };
    const auto graph = stream->capture([&] {
      note(*stream, '(');
      stream->loop(
          {.passes = counter.tensor().elements(0, 1), .count = counter.tensor().elements(1, 1)}, 0,
          [&] {
            stream->record(*fork);
            side->wait(*fork);
            note(*stream, 'a');
            note(*side, 'b');
            side->record(*join);
            stream->wait(*join);
          });
      note(*stream, ')');
    });
    NodeSums sums(graph->trace());
    ASSERT_TRUE(graph->observe(&sums));
    stream->launch(*graph);
    ASSERT_EQ(order.size(), 8U);
    EXPECT_EQ(order.front(), '(');
    EXPECT_EQ(order.back(), ')');
    for (std::size_t pass = 0; pass < 3; ++pass)
      EXPECT_NE(order[1 + 2 * pass], order[2 + 2 * pass]) << order;
    orders.insert(order);
    std::vector<std::int64_t> calls;
    for (const NodeSums::Sum& sum : sums.of())
      calls.push_back(sum.calls);
    EXPECT_EQ(calls, (std::vector<std::int64_t>{1, 1, 3, 3, 3, 1}));
  }
  EXPECT_EQ(orders.size(), 8U);  // 2 per pass
}

TEST(HostStream, AForgottenEventIsAnErrorAtCaptureThatNamesBothNodes) {
  ToyStep step({});
  EXPECT_NO_THROW((void)step.capture(true, true));
  const std::string first = message_of<Error>([&] { (void)step.capture(false, true); });
  EXPECT_NE(first.find("'backward'"), std::string::npos) << first;
  EXPECT_NE(first.find("'reduction'"), std::string::npos) << first;
  const std::string second = message_of<Error>([&] { (void)step.capture(true, false); });
  EXPECT_NE(second.find("'reduction'"), std::string::npos) << second;
  EXPECT_NE(second.find("'update'"), std::string::npos) << second;
  EXPECT_NO_THROW((void)step.capture(true, true));
}

TEST(HostGraph, AForgottenEventGivesOtherResultsInRandomOrder) {
  for (const bool first : {false, true}) {
    std::set<std::vector<float>> results;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      ToyStep step({.random_order_seed = seed, .check_races = false});
      results.insert(step.train(!first, first));
    }
    EXPECT_GT(results.size(), 1U);
  }
}

TEST(HostGraph, TheRandomOrderIsNewAtEveryLaunchAndTheSeedsOwn) {
  const auto orders = [](std::uint64_t seed) {
    HostDevice device(0, {.random_order_seed = seed});
    const auto stream = device.make_stream(StreamPriority::kNormal);
    const auto side = device.make_stream(StreamPriority::kNormal);
    const auto fork = device.make_event();
    const auto join = device.make_event();
    std::vector<int> order;
    const auto graph = stream->capture([&] {
      stream->record(*fork);
      side->wait(*fork);
      for (int i = 0; i < 8; ++i)
        (i % 2 == 0 ? stream : side)->enqueue_host("n", {}, [&order, i] { order.push_back(i); });
      side->record(*join);
      stream->wait(*join);
    });
    std::vector<std::vector<int>> all;
    for (int launch = 0; launch < 10; ++launch) {
      order.clear();
      stream->launch(*graph);
      all.push_back(order);
      EXPECT_EQ(order.size(), 8U);
      for (std::size_t i = 0; i < order.size(); ++i)  // each stream is in order
        for (std::size_t j = 0; j < i; ++j)
          EXPECT_TRUE(order[j] % 2 != order[i] % 2 || order[j] < order[i]);
    }
    return all;
  };
  const auto first = orders(1);
  EXPECT_GT(std::set<std::vector<int>>(first.begin(), first.end()).size(), 1U);
  EXPECT_EQ(orders(1), first);
  EXPECT_NE(orders(2), first);
}

TEST(HostStream, ForgottenStreamsDoNotRunInsideSomebodysCapture) {
  HostDevice device(0);
  const auto stream = device.make_stream(StreamPriority::kNormal);
  const auto other = device.make_stream(StreamPriority::kNormal);
  const HostTensor a = HostTensor({2}, std::vector<float>{1, 2});
  const auto graph = stream->capture([&] { stream->zero(a); });
  EXPECT_THROW((void)stream->capture([&] { other->zero(a); }), Error);
  EXPECT_THROW((void)stream->capture([&] { other->launch(*graph); }), Error);
  EXPECT_THROW((void)stream->capture([&] { other->synchronize(); }), Error);
  const auto captures = [&] { (void)other->capture([] {}); };
  EXPECT_THROW((void)stream->capture(captures), Error);
  EXPECT_EQ(a.values()[0], 1.0F);
}

TEST(HostStream, AnotherDevicesCaptureDoesNotDisturb) {
  HostDevice one(0);
  HostDevice two(1);
  const auto stream = one.make_stream(StreamPriority::kNormal);
  const auto other = two.make_stream(StreamPriority::kNormal);
  const HostTensor a = HostTensor({2}, std::vector<float>{1, 2});
  (void)stream->capture([&] {
    EXPECT_NO_THROW(other->zero(a));
    EXPECT_NO_THROW((void)two.allocate(64, "there"));
  });
  EXPECT_EQ(a.values()[0], 0.0F);
}

TEST(HostGraph, OutlivesTheCaptureOfItsArguments) {
  HostDevice device(0);
  const auto stream = device.make_stream(StreamPriority::kNormal);
  const HostTensor a = HostTensor({2}, std::vector<float>{1, 2});
  std::unique_ptr<Graph> graph;
  {
    const auto value = std::make_shared<float>(5.0F);
    graph = stream->capture([&] {
      stream->enqueue_host("set", {}, [value, t = a.tensor()] { t.as<float>()[0] = *value; });
    });
  }
  stream->launch(*graph);
  EXPECT_EQ(a.values()[0], 5.0F);
}

}  // namespace
}  // namespace muo
