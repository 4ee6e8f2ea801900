// The two bodies of version.h: one for oneDNN 2.x, one for 3.x and later.
#include "version.h"

namespace gable::onednn {

namespace {

constexpr dnnl::prop_kind kInference = dnnl::prop_kind::forward_inference;

/// Moves on to an implementation that is not to be avoided. oneDNN 2 reads the operation's descriptor while it does.
void skip_brgemm(const ConvolutionArguments& a, dnnl::convolution_forward::primitive_desc& description) {
  const auto avoided = [&](const std::string& name) {
    return (a.avoid_brgemm && name.find("brg") != std::string::npos) ||
           (a.avoid_brdgmm && name.find("brdgmm") != std::string::npos);
  };
  while (avoided(description.impl_info_str())) {
    if (!description.next_impl()) throw dnnl::error(dnnl_unimplemented, "oneDNN has only brgemm for this op");
  }
}

}  // namespace

#if DNNL_VERSION_MAJOR < 3

dnnl::convolution_forward::primitive_desc describe_convolution(const dnnl::engine& engine,
                                                               const ConvolutionArguments& arguments,
                                                               const dnnl::primitive_attr& attributes) {
  using Descriptor = dnnl::convolution_forward::desc;
  const auto& a = arguments;
  const Descriptor descriptor = a.has_bias
                                    ? Descriptor(kInference, a.algorithm, a.source, a.weights, a.bias, a.destination,
                                                 a.strides, a.dilations, a.padding_before, a.padding_after)
                                    : Descriptor(kInference, a.algorithm, a.source, a.weights, a.destination, a.strides,
                                                 a.dilations, a.padding_before, a.padding_after);
  dnnl::convolution_forward::primitive_desc description(descriptor, attributes, engine);
  skip_brgemm(a, description);
  return description;
}

dnnl::pooling_forward::primitive_desc describe_max_pooling(const dnnl::engine& engine,
                                                           const PoolingArguments& arguments,
                                                           const dnnl::primitive_attr& attributes) {
  const auto& a = arguments;
  const dnnl::pooling_forward::desc descriptor(kInference, dnnl::algorithm::pooling_max, a.source, a.destination,
                                               a.strides, a.window, a.padding_before, a.padding_after);
  return {descriptor, attributes, engine};
}

dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const MatmulArguments& arguments,
                                             const dnnl::primitive_attr& attributes) {
  const auto& a = arguments;
  const dnnl::matmul::desc descriptor = a.has_bias ? dnnl::matmul::desc(a.source, a.weights, a.bias, a.destination)
                                                   : dnnl::matmul::desc(a.source, a.weights, a.destination);
  return {descriptor, attributes, engine};
}

dnnl::binary::primitive_desc describe_add(const dnnl::engine& engine, const dnnl::memory::desc& operands,
                                          const dnnl::primitive_attr& attributes) {
  const dnnl::binary::desc descriptor(dnnl::algorithm::binary_add, operands, operands, operands);
  return {descriptor, attributes, engine};
}

void append_activation(dnnl::post_ops& operations, dnnl::algorithm algorithm) {
  operations.append_eltwise(1.0F, algorithm, 0.0F, 0.0F);
}

Blocking blocking_of(const dnnl::memory::desc& description) {
  const dnnl_memory_desc_t& data = description.data;
  const auto& format = data.format_desc.blocking;
  Blocking result;
  result.dims.assign(data.dims, data.dims + data.ndims);
  result.blocked = data.format_kind == dnnl_blocked;
  if (!result.blocked) return result;
  result.strides.assign(format.strides, format.strides + data.ndims);
  result.block_sizes.assign(format.inner_blks, format.inner_blks + format.inner_nblks);
  result.block_dims.assign(format.inner_idxs, format.inner_idxs + format.inner_nblks);
  return result;
}

std::string why_no_winograd() {
  const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  if ((effective & kNeeded) == kNeeded) return {};
  return "oneDNN's winograd convolution needs AVX-512";
}

#else

dnnl::convolution_forward::primitive_desc describe_convolution(const dnnl::engine& engine,
                                                               const ConvolutionArguments& arguments,
                                                               const dnnl::primitive_attr& attributes) {
  const auto& a = arguments;
  using Description = dnnl::convolution_forward::primitive_desc;
  Description description =
      a.has_bias ? Description(engine, kInference, a.algorithm, a.source, a.weights, a.bias, a.destination, a.strides,
                               a.dilations, a.padding_before, a.padding_after, attributes)
                 : Description(engine, kInference, a.algorithm, a.source, a.weights, a.destination, a.strides,
                               a.dilations, a.padding_before, a.padding_after, attributes);
  skip_brgemm(a, description);
  return description;
}

dnnl::pooling_forward::primitive_desc describe_max_pooling(const dnnl::engine& engine,
                                                           const PoolingArguments& arguments,
                                                           const dnnl::primitive_attr& attributes) {
  const auto& a = arguments;
  const dnnl::memory::dims adjacent(a.window.size(), 0);
  return {engine,          kInference,    dnnl::algorithm::pooling_max,
          a.source,        a.destination, a.strides,
          a.window,        adjacent,      a.padding_before,
          a.padding_after, attributes};
}

dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const MatmulArguments& arguments,
                                             const dnnl::primitive_attr& attributes) {
  const auto& a = arguments;
  if (a.has_bias) return {engine, a.source, a.weights, a.bias, a.destination, attributes};
  return {engine, a.source, a.weights, a.destination, attributes};
}

dnnl::binary::primitive_desc describe_add(const dnnl::engine& engine, const dnnl::memory::desc& operands,
                                          const dnnl::primitive_attr& attributes) {
  return {engine, dnnl::algorithm::binary_add, operands, operands, operands, attributes};
}

void append_activation(dnnl::post_ops& operations, dnnl::algorithm algorithm) {
  operations.append_eltwise(algorithm, 0.0F, 0.0F);
}

Blocking blocking_of(const dnnl::memory::desc& description) {
  Blocking result;
  result.dims = description.get_dims();
  result.blocked = description.get_format_kind() == dnnl::memory::format_kind::blocked;
  if (!result.blocked) return result;
  result.strides = description.get_strides();
  result.block_sizes = description.get_inner_blks();
  result.block_dims = description.get_inner_idxs();
  return result;
}

std::string why_no_winograd() { return "oneDNN has no winograd convolution for CPUs since version 3.0"; }

#endif

std::vector<InstructionSet> instruction_sets() {
  using dnnl::cpu_isa;
  return {
    {"sse41", cpu_isa::sse41}, {"avx", cpu_isa::avx}, {"avx2", cpu_isa::avx2}, {"avx2_vnni", cpu_isa::avx2_vnni},
#if DNNL_VERSION_MAJOR >= 3
        {"avx2_vnni_2", cpu_isa::avx2_vnni_2},
#endif
        {"avx512", cpu_isa::avx512_core}, {"avx512_vnni", cpu_isa::avx512_core_vnni},
        {"avx512_bf16", cpu_isa::avx512_core_bf16},
#if DNNL_VERSION_MAJOR >= 3
        {"avx512_fp16", cpu_isa::avx512_core_fp16},
#endif
    {
      "avx512_amx", cpu_isa::avx512_core_amx
    }
  };
}

}  // namespace gable::onednn
