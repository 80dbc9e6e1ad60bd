// The launch functions of the GPU variants: one template a variant, instantiated once for every
// element type that it takes (HIPNORM_ELEMENT: every .hip file is compiled once a type), and picked
// by kernels/gpu/launch.hip.
//
// A launch function turns arguments, config and plan into kernel launches on launch.stream; it
// decides nothing that plan() has decided. Returns the launch call's own error.
#pragma once

#include "kernels/gpu/packet.h"
#include "kernels/launch.h"

namespace hipnorm::gpu {

template <class T>
hipError_t forward_wave(const ForwardArgs& args, const Launch& launch);
template <class T>
hipError_t forward_row(const ForwardArgs& args, const Launch& launch);
// forward_row on AMD, with stages=2, where rows are whole packets.
template <class T>
hipError_t forward_packets(const ForwardArgs& args, const Launch& launch);
template <class T>
hipError_t forward_ring(const ForwardArgs& args, const Launch& launch);
template <class T>
hipError_t forward_stream(const ForwardArgs& args, const Launch& launch);

template <class T>
hipError_t backward_wave(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_row(const BackwardArgs& args, const Launch& launch);
// backward_row likewise.
template <class T>
hipError_t backward_packets(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_ring(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_group(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_two_kernel(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_sums_first(const BackwardArgs& args, const Launch& launch);
template <class T>
hipError_t backward_roles(const BackwardArgs& args, const Launch& launch);

// backward_row without dweight and dbias: the second kernel of backward_two_kernel. `launch` has
// the plan of that kernel: tasks, threads, vectors.
template <class T>
hipError_t backward_row_dx(const BackwardArgs& args, const Launch& launch);

// The last step of every backward that sums columns: adds the partial rows
// (workspace + plan.dweight_offset and plan.dbias_offset, plan.partial_rows × plan.pitch of the
// accumulate type each) in their order and writes dweight and dbias, each where it is asked for.
template <class T>
hipError_t reduce_parts(const BackwardArgs& args, const Launch& launch);

// Blocks (clusters or groups, where config.split > 1) of a persistent variant's main kernel that
// the whole device holds at once (resident_clusters in prepare.h); 0: the kernel cannot run there.
// `plan` has threads, vectors and lds_bytes. kernels/gpu/resident.hip picks and remembers.
template <class T>
int forward_row_resident(const Config& config, const Plan& plan, const Problem& problem,
                         const Device& device);
template <class T>
int forward_packets_resident(const Plan& plan, const Problem& problem, const Device& device);
template <class T>
int forward_ring_resident(const Config& config, const Plan& plan, const Problem& problem,
                          const Device& device);
template <class T>
int backward_wave_resident(const Config& config, const Plan& plan, const Problem& problem,
                           const Device& device);
template <class T>
int backward_row_resident(const Config& config, const Plan& plan, const Problem& problem,
                          const Device& device);
template <class T>
int backward_packets_resident(const Plan& plan, const Problem& problem, const Device& device);
template <class T>
int backward_ring_resident(const Config& config, const Plan& plan, const Problem& problem,
                           const Device& device);
template <class T>
int backward_group_resident(const Config& config, const Plan& plan, const Problem& problem,
                            const Device& device);

}  // namespace hipnorm::gpu
