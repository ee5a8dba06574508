#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/host_memory.h"

namespace pelton::engine {
namespace {

constexpr int32_t kDefaultContext = 4096;

Status fill_defaults(const models::ModelConfig& config, EngineOptions* options) {
  const auto positive = [](int64_t value, const char* name) -> Status {
    if (value > 0) return {};
    return invalid_argument(fmt::format("{} must be positive, not {}", name, value));
  };
  if (options->max_model_len == 0)
    options->max_model_len = std::min(config.max_position_embeddings, kDefaultContext);
  for (const Status& status :
       {positive(options->max_model_len, "max_model_len"),
        positive(options->max_num_seqs, "max_num_seqs"),
        positive(options->max_num_batched_tokens, "max_num_batched_tokens")}) {
    if (!status.ok()) return status;
  }
  // Dynamic scaling is made to go beyond the trained positions.
  const double stretch = config.rope.scaling == models::RopeScaling::kDynamic
                             ? std::max(1.0f, config.rope.factor)
                             : 1.0f;
  if (options->max_model_len > config.max_position_embeddings * stretch) {
    return invalid_argument(fmt::format("max_model_len {} is above the model's {} positions",
                                        options->max_model_len, config.max_position_embeddings));
  }
  if (options->block_size < 16 || options->block_size > 256 ||
      (options->block_size & (options->block_size - 1)) != 0) {
    return invalid_argument(
        fmt::format("block_size must be 16, 32, 64, 128 or 256, not {}", options->block_size));
  }
  if (options->max_num_seqs > 4096) return invalid_argument("max_num_seqs must be at most 4096");
  if (options->max_num_batched_tokens > (1 << 20))
    return invalid_argument("max_num_batched_tokens must be at most 1048576");
  options->max_num_seqs = std::min(options->max_num_seqs, options->max_num_batched_tokens);
  options->max_logit_rows = std::max(options->max_logit_rows, options->max_num_seqs);
  if (options->threads == 0) options->threads = available_threads();
  if (options->threads < 1 || options->threads > 1024) {
    return invalid_argument(fmt::format("threads must be 1 to 1024, not {}", options->threads));
  }
  const IsaLevel best = cpu_features().best_level();
  if (!options->isa) options->isa = best;
  if (*options->isa > best) {
    return unsupported(fmt::format("this processor stops at {}; {} was asked for",
                                   isa_level_name(best), isa_level_name(*options->isa)));
  }
  return {};
}

runtime::EngineShape shape_of(const EngineOptions& options) {
  return {.max_model_len = options.max_model_len,
          .max_num_seqs = options.max_num_seqs,
          .max_num_batched_tokens = options.max_num_batched_tokens,
          .max_logit_rows = options.max_logit_rows,
          .block_tokens = options.block_size,
          .kv_format = options.kv_cache_dtype,
          .invariant = options.invariant,
          .memory_limit = options.memory_limit,
          .graphs = !options.enforce_eager};
}

// Where the options put the engine, for the plan and for the weights.
nn::WeightPlacement placement_of(const EngineOptions& options) {
  return {.on_device = options.cuda,
          .exact = options.activations == kernels::ActivationPrecision::kF32,
          .quantization = options.quantization};
}

// What a device's plan may take: what the user allows, or a share of what is free; without a device
// at hand, of what the expected one has.
Result<size_t> device_limit(const EngineOptions& options) {
  if (options.memory_limit > 0) return options.memory_limit;
  if (options.backend == nullptr) {
    return static_cast<size_t>(static_cast<double>(device::h200_caps().memory_bytes) *
                               options.gpu_memory_utilization);
  }
  auto memory = options.backend->device().memory();
  if (!memory.ok()) return memory.status();
  return static_cast<size_t>(static_cast<double>(memory->free) * options.gpu_memory_utilization);
}

// Blocks: as many as asked for, else whole contexts for everyone, else what the limit leaves.
Status fit_blocks(const EngineOptions& options, size_t limit, size_t fixed,
                  runtime::MemoryPlan* plan) {
  const char* bound = options.memory_limit > 0     ? "--memory"
                      : options.backend == nullptr ? "an H200's memory"
                                                   : "the GPU's free memory";
  const int64_t per_context =
      (int64_t{options.max_model_len} + options.block_size - 1) / options.block_size;
  int64_t blocks =
      options.num_kv_blocks > 0 ? options.num_kv_blocks : per_context * options.max_num_seqs;
  if (limit > 0) {
    if (fixed + plan->kv_block_bytes > limit) {
      return resource_exhausted(fmt::format(
          "{} of {} bytes is too small: weights, scratch and tables take {} bytes and "
          "one KV block {} bytes; {} bytes are missing",
          bound, limit, fixed, plan->kv_block_bytes, fixed + plan->kv_block_bytes - limit));
    }
    const auto fitting = static_cast<int64_t>((limit - fixed) / plan->kv_block_bytes);
    if (options.num_kv_blocks > 0 && fitting < blocks) {
      return resource_exhausted(
          fmt::format("{} KV blocks do not fit into {}; {} do", blocks, bound, fitting));
    }
    blocks = std::min(blocks, fitting);
  }
  if (blocks > INT32_MAX / options.block_size)
    return invalid_argument("the KV cache would hold more than 2^31 tokens");
  plan->num_blocks = static_cast<int32_t>(blocks);
  plan->kv_cache = plan->kv_block_bytes * static_cast<size_t>(blocks);
  return {};
}

}  // namespace

Status open_backend(EngineOptions* options) {
  if (!options->cuda || options->backend != nullptr) return {};
  auto backend = runtime::Backend::open_cuda(options->cuda_index, options->cuda_libraries);
  if (!backend.ok()) return backend.status();
  options->backend = std::move(backend).value();
  return {};
}

Result<runtime::MemoryPlan> plan_memory(const ModelFiles& files, EngineOptions* options) {
  if (Status s = fill_defaults(files.config(), options); !s.ok()) return s;
  nn::WeightLoader loader(files.source(), files.name_map(), placement_of(*options));
  auto model = models::build_model(files.config(), options->max_model_len, loader);
  if (!model.ok()) return model.status();
  const runtime::EngineShape shape = shape_of(*options);
  const kv::KvConfig kv_config{.layers = models::kv_shape(files.config()),
                               .block_tokens = options->block_size,
                               .format = options->kv_cache_dtype};
  runtime::MemoryPlan plan;
  plan.weights = loader.totals().arena_bytes;
  plan.mapped_weights = loader.totals().in_place_bytes;
  plan.streamed_weights = loader.totals().streamed_bytes;
  plan.parameters = loader.totals().parameters;
  plan.arrangement = loader.totals().arrangement;
  plan.on_device = options->cuda;
  const runtime::PlanTarget target(options->backend.get());
  const ops::DeviceStep device = target.step();
  plan.scratch = runtime::plan_scratch(**model, shape, options->threads, *options->isa,
                                       options->activations, options->cuda ? &device : nullptr);
  plan.host = host_bytes(files, *options);
  if (files.synthetic() && !options->cuda) {
    // What is used in place lies in anonymous memory, not in a file.
    plan.made = std::exchange(plan.mapped_weights, 0);
  }
  if (options->cuda) runtime::plan_device_side(shape, files.config(), target.kernels, &plan);
  plan.block_tokens = options->block_size;
  plan.kv_block_bytes = kv::kv_block_bytes(kv_config);
  plan.kv_token_bytes = kv::kv_token_bytes(kv_config);
  auto limit = options->cuda ? device_limit(*options) : Result<size_t>(options->memory_limit);
  if (!limit.ok()) return limit.status();
  const size_t fixed = options->cuda ? plan.device() : plan.anonymous();
  if (Status s = fit_blocks(*options, *limit, fixed, &plan); !s.ok()) return s;
  return plan;
}

Status Engine::initialise(std::shared_ptr<const LoadedModel> loaded,
                          std::unique_ptr<ThreadPool> pool, const runtime::MemoryPlan& plan) {
  plan_ = plan;
  loaded_ = std::move(loaded);
  dry_breakers_ = std::make_unique<DryBreakers>(loaded_->tokenizer());
  pool_ = std::move(pool);
  auto runner = runtime::Runner::create(loaded_->model(), *pool_,
                                        {.shape = shape_of(options_),
                                         .activations = options_.activations,
                                         .isa = *options_.isa,
                                         .backend = loaded_->backend()},
                                        plan_);
  if (!runner.ok()) return runner.status();
  runner_ = std::move(runner).value();
  scheduler_ = std::make_unique<sched::Scheduler>(
      sched::SchedulerConfig{.max_num_seqs = options_.max_num_seqs,
                             .max_num_batched_tokens = options_.max_num_batched_tokens,
                             .max_logit_rows = options_.max_logit_rows,
                             .max_model_len = options_.max_model_len,
                             .block_tokens = options_.block_size,
                             .num_blocks = plan_.num_blocks,
                             .max_waiting = options_.max_waiting,
                             .enable_prefix_caching = options_.enable_prefix_caching,
                             .static_batching = options_.static_batching,
                             .end_ids = loaded_->end_ids()});
  for (int i = 0; i < pool_->size(); ++i) {
    sampler_scratch_.emplace_back(loaded_->model().config().vocab_size, options_.max_model_len);
  }
  draws_.reserve(static_cast<size_t>(options_.max_num_seqs));
  for (Flight* flight : {&flight_, &next_flight_}) {
    flight->plan.sequences.reserve(static_cast<size_t>(options_.max_num_seqs));
    flight->sampled.reserve(static_cast<size_t>(options_.max_num_seqs));
  }
  requests_.reserve(static_cast<size_t>(options_.max_num_seqs));
  sampled_.reserve(static_cast<size_t>(options_.max_num_seqs));
  show_metrics();
  return {};
}

Result<std::unique_ptr<Engine>> Engine::load(std::unique_ptr<ModelFiles> files,
                                             const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = options;
  EngineOptions& chosen = engine->options_;
  if (Status s = open_backend(&chosen); !s.ok()) return s;
  auto plan = plan_memory(*files, &chosen);
  if (!plan.ok()) return plan.status();
  auto pool = std::make_unique<ThreadPool>(chosen.threads);
  auto loaded = LoadedModel::load(std::move(files),
                                  {.context_len = chosen.max_model_len,
                                   .weight_bytes = plan->weights,
                                   .backend = chosen.backend,
                                   .exact_weights = placement_of(chosen).exact,
                                   .quantization = chosen.quantization,
                                   .packed_cache = chosen.packed_cache,
                                   .arrangement = plan->arrangement},
                                  *pool);
  if (!loaded.ok()) return loaded.status();
  if (Status s = engine->initialise(std::move(loaded).value(), std::move(pool), *plan); !s.ok())
    return s;
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const LoadedModel> loaded,
                                               const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = options;
  engine->options_.backend = loaded->backend();
  engine->options_.cuda = loaded->backend() != nullptr;
  auto plan = plan_memory(loaded->files(), &engine->options_);
  if (!plan.ok()) return plan.status();
  auto pool = std::make_unique<ThreadPool>(engine->options_.threads);
  if (Status s = engine->initialise(std::move(loaded), std::move(pool), *plan); !s.ok()) return s;
  return engine;
}

}  // namespace pelton::engine
