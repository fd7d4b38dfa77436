#pragma once

#include <cstdint>

namespace muo {

// What a change of an option asks of a training step that is captured already: whether a sweep over
// it can replay the same graph.
enum class OptionClass : std::uint8_t {
  kOther,     // of a command that captures no training step
  kHost,      // nothing: the step does not know it (data order, evaluation, saving, logging)
  kMemory,    // nothing: read from device memory (HyperParameters)
  kCaptured,  // another capture in the same memory: a constant of the graph, or its form
  kShape,     // another memory plan as well: sizes of tensors, formats, devices
};

}  // namespace muo
