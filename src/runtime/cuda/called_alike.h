#pragma once

#include <type_traits>

namespace muo {

// True if two function types, ours and NVIDIA's declaration, have parameters of equal size and
// kind, as the calling convention sees them.
template <class Ours, class Theirs>
inline constexpr bool called_alike_v = false;
template <class R, class... P, class S, class... Q>
requires(sizeof...(P) ==
         sizeof...(Q)) inline constexpr bool called_alike_v<R (*)(P...), S (*)(Q...)> =
    sizeof(R) == sizeof(S) &&
    ((sizeof(P) == sizeof(Q) && std::is_pointer_v<P> == std::is_pointer_v<Q>)&&...);

}  // namespace muo
