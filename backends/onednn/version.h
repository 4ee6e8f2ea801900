// What differs between oneDNN 2.x (operation descriptors, public C structs) and 3.x (neither), as one set of functions.
// No other file in this folder depends on oneDNN's version.
#pragma once

#include <dnnl.hpp>
#include <string>
#include <vector>

namespace gable::onednn {

/// Of the library.
inline constexpr int kMajorVersion = DNNL_VERSION_MAJOR;

/// A blocked memory format: strides of the outer dimensions and the inner blocks, outermost first.
struct Blocking {
  bool blocked = false;  ///< false for formats that only oneDNN can read, such as winograd's weights
  std::vector<dnnl::memory::dim> dims;
  std::vector<dnnl::memory::dim> strides;
  std::vector<dnnl::memory::dim> block_sizes;
  std::vector<dnnl::memory::dim> block_dims;
};

struct ConvolutionArguments {
  dnnl::algorithm algorithm = dnnl::algorithm::convolution_direct;
  dnnl::memory::desc source;
  dnnl::memory::desc weights;
  bool has_bias = false;
  dnnl::memory::desc bias;
  dnnl::memory::desc destination;
  dnnl::memory::dims strides;
  dnnl::memory::dims dilations;  ///< 0 means adjacent taps
  dnnl::memory::dims padding_before;
  dnnl::memory::dims padding_after;
  bool avoid_brgemm = false;  ///< take the first implementation that is not brgemm
  bool avoid_brdgmm = false;  ///< nor its depthwise kind, which has a name of its own
};

struct PoolingArguments {
  dnnl::memory::desc source;
  dnnl::memory::desc destination;
  dnnl::memory::dims strides;
  dnnl::memory::dims window;
  dnnl::memory::dims padding_before;
  dnnl::memory::dims padding_after;
};

struct MatmulArguments {
  dnnl::memory::desc source;
  dnnl::memory::desc weights;
  bool has_bias = false;
  dnnl::memory::desc bias;
  dnnl::memory::desc destination;
};

// All throw dnnl::error when oneDNN has no implementation.
dnnl::convolution_forward::primitive_desc describe_convolution(const dnnl::engine& engine,
                                                               const ConvolutionArguments& arguments,
                                                               const dnnl::primitive_attr& attributes);
dnnl::pooling_forward::primitive_desc describe_max_pooling(const dnnl::engine& engine,
                                                           const PoolingArguments& arguments,
                                                           const dnnl::primitive_attr& attributes);
dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const MatmulArguments& arguments,
                                             const dnnl::primitive_attr& attributes);
dnnl::binary::primitive_desc describe_add(const dnnl::engine& engine, const dnnl::memory::desc& operands,
                                          const dnnl::primitive_attr& attributes);

void append_activation(dnnl::post_ops& operations, dnnl::algorithm algorithm);
Blocking blocking_of(const dnnl::memory::desc& description);

/// Winograd convolutions need AVX-512 and were removed in oneDNN 3.0. The reason, or empty where they exist. Fixes the
/// instruction set.
std::string why_no_winograd();

struct InstructionSet {
  std::string name;
  dnnl::cpu_isa value;
};
/// Values of ?isa=, narrowest first.
std::vector<InstructionSet> instruction_sets();

}  // namespace gable::onednn
