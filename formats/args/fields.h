/*
 * The arguments of a run, a row each: the one list of them. struct mfs_megatron_args has a member
 * for each row; the reader of arguments, the writer of a Namespace, mcorefs diff, the words of
 * families' files, --use-checkpoint-args and --load go through the rows (field.h).
 *
 *   ARG(TYPE, member, ...)     a member, and what is known of it
 *   PART(TYPE, member.x, ...)  a part of the member above it
 *
 * What may follow the member, in this order:
 *
 *   NAMED("x")          Megatron's name, where it is not the member's
 *   OR_AS("x")          a name in older releases; AND_AS("x"): one that is written, too
 *   INVERTED            Megatron's value is the opposite
 *   REQUIRED, POSITIVE(n), NATURAL(n), REAL_OR(x), FLAG_OR(x), TEXT_OR(x)
 *                       how it is read, and what it is where the run does not say it. None of
 *                       these: megatron_args.c has code for it, or somebody else fills it in
 *   PLAIN(.number = n)  what it is in a model without any feature, where that differs
 *   WRITTEN, WRITTEN_IN(SECTION)
 *                       the writer takes it as it is; where in the Namespace. Neither: namespace.c
 *                       has code for it, or Megatron has no such argument
 *   ZERO_IS_NONE, WHOLE how it is written: None for 0, an int where it is a whole number
 *   MODEL, TRAINING     differences change what the model computes, or how it is trained on
 *   SHOWN("x")          its name in what diff prints, where it is not the member's
 *   APART("why")        why it is not compared
 *   WORD                families' files may name it
 *   TAKEN, FORCED       --use-checkpoint-args takes it where nothing was given, or in any case
 *   FITS, FITS_AS("x")  --load takes no checkpoint that differs; in words
 *
 * Rows stand in the order in which a Namespace has them.
 */
#ifndef ARG
#define ARG(...)
#endif
#ifndef PART
#define PART(...)
#endif

/* ---- size of the model ---- */
ARG(INT, num_layers, REQUIRED, WRITTEN, MODEL, WORD, TAKEN, FITS)
ARG(INT, hidden_size, REQUIRED, WRITTEN, MODEL, WORD, TAKEN, FITS)
ARG(INT, ffn_hidden_size, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD, TAKEN, FITS)
ARG(INT, num_attention_heads, REQUIRED, WRITTEN, MODEL, WORD, TAKEN, FITS)
/* = heads without group_query_attention */
ARG(INT, num_query_groups, PLAIN(.number = MFS_ABSENT), WRITTEN, MODEL, WORD, FORCED, FITS)
ARG(INT, kv_channels, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD, TAKEN, FITS)
ARG(INT, seq_length, POSITIVE(MFS_ABSENT), PLAIN(.number = 0), WRITTEN, TRAINING)
ARG(INT, max_position_embeddings, POSITIVE(MFS_ABSENT), PLAIN(.number = 0), WRITTEN, MODEL, WORD,
    TAKEN)
/* the true size, MFS_ABSENT in most files */
ARG(INT, vocab_size, POSITIVE(MFS_ABSENT), PLAIN(.number = 0), WRITTEN,
    APART("the tensors have it, and rows of padding are no difference"), TAKEN)
ARG(INT, padded_vocab_size, POSITIVE(MFS_ABSENT), PLAIN(.number = 0), WRITTEN,
    APART("the tensors have it"), TAKEN)
ARG(INT, make_vocab_size_divisible_by, POSITIVE(128), WRITTEN,
    APART("the tensors' padding follows from it"))

/* ---- kind of layer ---- */
/* normalization == "LayerNorm", else RMSNorm */
ARG(FLAG, layernorm, MODEL, FITS_AS("normalization == LayerNorm"))
/* Weight = stored + 1. Both names of this and of the next were changed in core 0.16. */
ARG(FLAG, zero_centered_gamma, NAMED("apply_layernorm_1p"), AND_AS("layernorm_zero_centered_gamma"),
    FLAG_OR(false), WRITTEN, APART("norms are compared as they are applied (pairs.c)"), FORCED,
    FITS_AS("apply_layernorm_1p"))
ARG(REAL, norm_epsilon, AND_AS("layernorm_epsilon"), REAL_OR(1e-5), PLAIN(.real = 0), WRITTEN,
    MODEL, WORD, TAKEN)
ARG(FLAG, swiglu, FLAG_OR(false), WRITTEN, MODEL, FORCED, FITS)
ARG(FLAG, squared_relu, FLAG_OR(false), WRITTEN, MODEL, FORCED, FITS)
ARG(FLAG, openai_gelu, FLAG_OR(false), WRITTEN,
    APART("nothing reads it; of a run before core exact_gelu says what it means"))
ARG(FLAG, quick_geglu, FLAG_OR(false), WRITTEN, MODEL, TAKEN, FITS)
/* Of a gated activation: what is added to its linear half, and at what both halves are clamped; 0:
 * nothing, not at all. */
ARG(REAL, glu_linear_offset, REAL_OR(0), WRITTEN, MODEL)
ARG(REAL, activation_func_clamp_value, REAL_OR(0), WRITTEN, ZERO_IS_NONE, MODEL, WORD)
/* GELU by tanh with a gate; Megatron-LM has no such argument */
ARG(FLAG, geglu, FLAG_OR(false), WRITTEN_IN(MODULES), MODEL)
/* GELU by erf, as torch computes it. Otherwise it is GELU by tanh: the fused form
 * (bias_gelu_fusion) or Transformer Engine's. Nothing in Megatron-core reads openai_gelu and
 * onnx_safe. */
ARG(FLAG, exact_gelu, NAMED("bias_gelu_fusion"), INVERTED, WRITTEN, MODEL)
/* a run of Megatron-LM before core, or of its legacy model */
ARG(FLAG, before_core, APART("the other arguments say what it means"))
ARG(FLAG, add_bias_linear, FLAG_OR(true), PLAIN(.truth = false), WRITTEN, MODEL, FORCED, FITS)
ARG(FLAG, add_qkv_bias, FLAG_OR(false), WRITTEN, MODEL, FORCED)
ARG(FLAG, qk_layernorm, FLAG_OR(false), WRITTEN, MODEL, TAKEN, FITS)
ARG(FLAG, qk_l2_norm, FLAG_OR(false), WRITTEN, MODEL)
ARG(FLAG, attention_output_gate, FLAG_OR(false), WRITTEN, MODEL, TAKEN, FITS)
/* softmax_type "learnable": each head has a softmax_offset */
ARG(FLAG, learnable_softmax, MODEL)
ARG(FLAG, tied, NAMED("untie_embeddings_and_output_weights"), INVERTED, FLAG_OR(true),
    PLAIN(.truth = false), WRITTEN, MODEL, FORCED,
    FITS_AS("tied embeddings (not untie_embeddings_and_output_weights)"))
/* q_layernorm and k_layernorm are over all heads at once, as in modules of Megatron-Bridge's own
 * (olmoe_provider.py, minimax_m2_provider.py). No argument says so, but the tensors do:
 * mfs_ckpt_group(). */
ARG(FLAG, qk_norm_wide, FLAG_OR(false), WRITTEN_IN(MODULES), MODEL)
/* What attention and MLP give is normed, and what they take is not, as in modules of
 * Megatron-Bridge's own (exaone4_provider.py). Told by the tensors, too. */
ARG(FLAG, post_norms, FLAG_OR(false), WRITTEN_IN(MODULES), MODEL)
/* 0: one over the root of kv_channels */
ARG(REAL, softmax_scale, WRITTEN_IN(SCALES), ZERO_IS_NONE, MODEL)
ARG(MUP, mup, APART("compared by its parts"))
PART(FLAG, mup.on, MODEL, SHOWN("use_mup"))
PART(REAL, mup.width, MODEL, SHOWN("mup width"))
PART(REAL, mup.embedding, MODEL, SHOWN("mup_embedding_mult"))
PART(REAL, mup.output, MODEL, SHOWN("mup_output_mult"))
PART(REAL, mup.attention, MODEL, SHOWN("mup attention scale"))
/* scale * tanh(x / scale) of attention scores and of logits; 0: without */
ARG(REAL, attn_logit_softcapping, REAL_OR(0), WRITTEN_IN(SCALES), ZERO_IS_NONE, MODEL, WORD)
ARG(REAL, final_logit_softcapping, REAL_OR(0), WRITTEN_IN(SCALES), ZERO_IS_NONE, MODEL, WORD)

/* ---- positions ---- */
/* "learned_absolute", "rope", "yarn", ... */
ARG(TEXT, position_embedding_type, WRITTEN, MODEL, FORCED, FITS)
ARG(REAL, rotary_base, PLAIN(.real = 10000), WRITTEN, WHOLE, MODEL, WORD, FORCED)
ARG(REAL, rotary_percent, REAL_OR(1), WRITTEN, MODEL, WORD, FORCED)
/* of the layers with a window; 0: the same in all layers */
ARG(REAL, rotary_base_local, WRITTEN_IN(MODULES), ZERO_IS_NONE, MODEL, WORD)
ARG(FLAG, rotary_interleaved, FLAG_OR(false), WRITTEN, MODEL, FORCED, FITS)
ARG(FLAG, use_rope_scaling, FLAG_OR(false), WRITTEN, MODEL, TAKEN)
/* With use_rope_scaling (llama3): MFS_ROPE_SCALING_FACTOR, or what the config.json of an HF
 * directory says. */
ARG(REAL, rope_scaling_factor, PLAIN(.real = MFS_ROPE_SCALING_FACTOR), WRITTEN, MODEL, TAKEN)
/* a different one in the run's arguments; 0: none */
ARG(REAL, rope_scaling_ignored, APART("no release of Megatron gives it to the model"))
/* 0: absent */
ARG(REAL, rotary_seq_len_interpolation_factor, REAL_OR(0), WRITTEN, ZERO_IS_NONE, MODEL, TAKEN)
/* Of MLA: "rope" or "yarn". Until core 0.13 there was no such argument, and since then None means
 * the same: YaRN. */
ARG(TEXT, rope_type, TEXT_OR("yarn"), PLAIN(.text = "rope"), WRITTEN, MODEL, TAKEN)
/* yarn: of the GPT form (yarn_*) and of MLA (rope_type, rotary_scaling_factor, ...) */
ARG(REAL, rotary_scaling_factor, PLAIN(.real = 1), WRITTEN, MODEL, TAKEN)
ARG(REAL, mscale, PLAIN(.real = 1), WRITTEN, MODEL, TAKEN)
ARG(REAL, mscale_all_dim, WRITTEN, MODEL, TAKEN)
ARG(REAL, beta_fast, REAL_OR(32), WRITTEN, MODEL)
ARG(REAL, beta_slow, REAL_OR(1), WRITTEN, MODEL)
ARG(INT, original_max_position_embeddings, POSITIVE(4096), WRITTEN, MODEL)
/* GPT form: not yarn_correction_range_round_to_int */
ARG(FLAG, yarn_unrounded, MODEL)
/* left window + 1 as HF counts it; MFS_ABSENT: none */
ARG(INT, window_size, PLAIN(.number = MFS_ABSENT), MODEL, WORD)
/* [num_layers], 1 where a layer has it (window_attn_skip_freq); NULL: all have */
ARG(LAYERS, window_layers, APART("compared by layers"))

/* ---- mixture of experts ---- */
/* MFS_ABSENT: dense */
ARG(INT, num_experts, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD, FORCED, FITS)
ARG(INT, moe_router_topk, POSITIVE(2), WRITTEN, MODEL, WORD, FORCED)
ARG(INT, moe_ffn_hidden_size, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD)
ARG(INT, moe_shared_expert_intermediate_size, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD, FORCED)
ARG(FLAG, moe_shared_expert_gate, FLAG_OR(false), WRITTEN, MODEL, TAKEN)
ARG(FLAG, moe_router_pre_softmax, FLAG_OR(false), WRITTEN, MODEL, FORCED)
ARG(FLAG, moe_router_enable_expert_bias, FLAG_OR(false), WRITTEN, MODEL, FORCED)
ARG(FLAG, moe_grouped_gemm, FLAG_OR(false), WRITTEN, APART("the same products, computed at once"),
    FORCED)
/* "softmax", "sigmoid" */
ARG(TEXT, moe_router_score_function, TEXT_OR("softmax"), WRITTEN, MODEL, FORCED)
/* 0: absent */
ARG(REAL, moe_router_topk_scaling_factor, REAL_OR(0), WRITTEN, ZERO_IS_NONE, MODEL)
ARG(INT, moe_router_num_groups, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, TAKEN)
ARG(INT, moe_router_group_topk, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, TAKEN)
ARG(REAL, moe_aux_loss_coeff, WRITTEN, TRAINING, WORD)
/* leading zeros of moe_layer_freq */
ARG(INT, first_dense_layers, APART("it follows from moe_layers"), WORD)
/* [num_layers], 1 where a layer is MoE; NULL if dense */
ARG(LAYERS, moe_layers, APART("compared by layers"))
/* moe_layer_freq is a list (even one of ones) or a number above 1. Megatron then numbers the layers
 * in torch_dist's keys, also those of a dense model (transformer_block.py: sharded_state_dict). */
ARG(FLAG, moe_layer_freq_listed, APART("it decides names in files"))

/* ---- multi-latent attention ---- */
ARG(FLAG, multi_latent_attention, FLAG_OR(false), WRITTEN, MODEL, TAKEN, FITS)
ARG(INT, q_lora_rank, POSITIVE(MFS_ABSENT), WRITTEN, MODEL, WORD, TAKEN)
ARG(INT, kv_lora_rank, POSITIVE(32), WRITTEN, MODEL, WORD, TAKEN)
ARG(INT, qk_head_dim, POSITIVE(128), WRITTEN, MODEL, WORD, TAKEN)
ARG(INT, qk_pos_emb_head_dim, POSITIVE(64), WRITTEN, MODEL, WORD, TAKEN)
ARG(INT, v_head_dim, POSITIVE(128), WRITTEN, MODEL, WORD, TAKEN)

/* ---- linear attention: a gated delta net (experimental_attention_variant) ---- */
/* [num_layers], 1 where a layer has it in place of the other (linear_attention_freq); NULL: none
 * has */
ARG(LAYERS, linear_layers, APART("compared by layers"))
ARG(INT, linear_conv_kernel_dim, POSITIVE(4), WRITTEN_IN(LINEAR), MODEL, WORD, TAKEN, FITS)
ARG(INT, linear_key_head_dim, POSITIVE(128), WRITTEN_IN(LINEAR), MODEL, WORD, TAKEN, FITS)
ARG(INT, linear_value_head_dim, POSITIVE(128), WRITTEN_IN(LINEAR), MODEL, WORD, TAKEN, FITS)
ARG(INT, linear_num_key_heads, POSITIVE(16), WRITTEN_IN(LINEAR), MODEL, WORD, TAKEN, FITS)
ARG(INT, linear_num_value_heads, POSITIVE(32), WRITTEN_IN(LINEAR), MODEL, WORD, TAKEN, FITS)

/* ---- layers that are one sublayer each ---- */
/* hybrid_layer_pattern, until core 0.16 hybrid_override_pattern: a letter a layer, num_layers of
 * them (hybrid_layers.h). NULL: a layer is attention and an MLP. */
ARG(TEXT, hybrid_layers, MODEL, SHOWN("hybrid_layer_pattern"))
/* A HybridModel whose pattern is that of a GPTModel, attention and an MLP in turns. It is read as
 * the GPTModel that it is: num_layers and all lists of layers count blocks. In its files block i is
 * the layers 2i and 2i + 1. */
ARG(FLAG, hybrid_form, APART("it decides names in files"))
/* Of such a model: a stage of the run's pipeline ended inside a block. */
ARG(FLAG, splits_blocks, APART("the layout"))
ARG(INT, mamba_state_dim, POSITIVE(128), WRITTEN_IN(HYBRID), MODEL, WORD)
ARG(INT, mamba_head_dim, POSITIVE(64), WRITTEN_IN(HYBRID), MODEL, WORD)
ARG(INT, mamba_num_groups, POSITIVE(8), WRITTEN_IN(HYBRID), MODEL, WORD)
ARG(INT, mamba_num_heads, POSITIVE(MFS_ABSENT), PLAIN(.number = 128), WRITTEN_IN(HYBRID), MODEL,
    WORD)
/* A mixer's convolution is no module of its own (since core 0.19): in legacy files its names are
 * conv1d_weight and conv1d_bias, and it comes first. No run has written a plain model: it is as
 * the newest release would have it. */
ARG(FLAG, mamba_conv_params, PLAIN(.truth = true), APART("it decides names in files"))

/* ---- multi-token prediction ---- */
/* 0: none */
ARG(INT, mtp_num_layers, NATURAL(0), WRITTEN, ZERO_IS_NONE, MODEL, WORD, FORCED)
/* the name of MTP's inner layer in legacy files is mtp_model_layer (since core 0.17), not
 * transformer_layer */
ARG(FLAG, mtp_model_layer, APART("it decides names in files"))

/* ---- what else makes a model ---- */
ARG(REAL, init_method_std, REAL_OR(0.02), WRITTEN, TRAINING, WORD)
/* The class of Megatron-Bridge or NeMo that made the model: "Gemma2ModelProvider9B". Some make
 * more of it than its fields say (families/family.h: providers). NULL: no such class. */
ARG(TEXT, provider, NAMED("model_provider"), TEXT_OR(NULL), WRITTEN_IN(CLASS), MODEL,
    SHOWN("model_provider"))
/* An argument that changes what the model computes and for which there is no row here, with its
 * value: "softmax_type (learnable)" (megatron_foreign.h). NULL: none. */
ARG(TEXT, foreign, MODEL, SHOWN("other arguments"))
/* the first such argument that the trainer does not know either */
ARG(TEXT, untrainable, APART("foreign has it"))
/* the rows of fc1 are interleaved in blocks of that size in the file; MFS_ABSENT or 0: they are
 * not */
ARG(INT, moe_mlp_glu_interleave_size, NATURAL(MFS_ABSENT), MODEL)
ARG(INT, moe_shared_expert_glu_interleave_size, NATURAL(MFS_ABSENT), MODEL)

/* ---- layout of the files ---- */
/* model_parallel_size before pipelines (October 2020) */
ARG(INT, tensor_model_parallel_size, OR_AS("model_parallel_size"), POSITIVE(1), WRITTEN,
    APART("the layout"))
ARG(INT, pipeline_model_parallel_size, POSITIVE(1), WRITTEN, APART("the layout"))
/* chunks of a stage, 1 without */
ARG(INT, virtual_pipeline_model_parallel_size, POSITIVE(MFS_ABSENT), PLAIN(.number = 1),
    APART("the layout"))
ARG(INT, expert_model_parallel_size, POSITIVE(1), WRITTEN, APART("the layout"))
ARG(INT, expert_tensor_parallel_size, POSITIVE(MFS_ABSENT), PLAIN(.number = 1), WRITTEN,
    APART("the layout"))
ARG(INT, data_parallel_size, POSITIVE(1), WRITTEN, APART("the layout"))
ARG(INT, world_size, POSITIVE(MFS_ABSENT), PLAIN(.number = 1), WRITTEN, APART("the layout"))
/* layers of the first and of the last pipeline stage; MFS_ABSENT: an equal share */
ARG(INT, first_stage_layers, NAMED("decoder_first_pipeline_num_layers"), POSITIVE(MFS_ABSENT),
    WRITTEN, APART("the layout"))
ARG(INT, last_stage_layers, NAMED("decoder_last_pipeline_num_layers"), POSITIVE(MFS_ABSENT),
    WRITTEN, APART("the layout"))
/* pipeline_model_parallel_layout or account_for_*_in_pipeline_split places the layers */
ARG(FLAG, other_stages, APART("the layout"))
/* the embedding or the loss counts as a layer where layers are divided among stages */
ARG(FLAG, account_for_embedding, NAMED("account_for_embedding_in_pipeline_split"), FLAG_OR(false),
    APART("the layout"))
ARG(FLAG, account_for_loss, NAMED("account_for_loss_in_pipeline_split"), FLAG_OR(false),
    APART("the layout"))
/* transformer_impl == "local", else Transformer Engine's modules */
ARG(FLAG, local_spec, APART("the same modules under other names"))
ARG(FLAG, use_distributed_optimizer, FLAG_OR(false), WRITTEN,
    APART("how states are divided among files"))
/* optimizer == "sgd"; without these three Adam, or one that is read as Adam is */
ARG(FLAG, sgd, TRAINING)
ARG(REAL, sgd_momentum, REAL_OR(0.9), PLAIN(.real = 0), TRAINING)
/* matrices are Muon's */
ARG(FLAG, muon, TRAINING)
/* optimizer == "lion", or that of what Muon does not take */
ARG(FLAG, lion, TRAINING)
/* An optimizer whose state was saved and is not read, such as "soap"; NULL: there is none */
ARG(TEXT, unread_optimizer, APART("its state cannot be compared"))
/* torch's name, or NULL */
ARG(TEXT, params_dtype, APART("the tensors have it"))

/* ---- where the model comes from, and its tokenizer ---- */
/* The family of the HF directory that the weights come from. Megatron has no such argument: our
 * views of HF directories write it, so that the way back gives the same class. NULL: nothing says
 * it. */
ARG(TEXT, hf_family, TEXT_OR(NULL), WRITTEN,
    APART("the other arguments say what the model computes"))
/* Its class and model_type, where they are other ones that mean this family (families/family.h:
 * also). NULL: the family's own. */
ARG(TEXT, hf_architecture, TEXT_OR(NULL), WRITTEN, APART("another name of one class"))
ARG(TEXT, hf_model_type, TEXT_OR(NULL), WRITTEN, APART("another name of one class"))
/* Rows and columns of the blocks of an HF directory's 8-bit weights (numbers/fp8.h). 0: it has
 * none. */
ARG(PAIR, hf_fp8_block, APART("how weights are stored; they are compared"))
/* its experts are 4-bit floats in blocks (numbers/fp4.h) */
ARG(FLAG, hf_mxfp4, APART("how weights are stored; they are compared"))
/* Sentences about what its config.json says and no argument does, ended by NULL. NULL: there are
 * none. */
ARG(TEXTS, hf_remarks, APART("the other arguments say what the model computes"))
/* or NULL */
ARG(TEXT, tokenizer_type, TEXT_OR(NULL), WRITTEN, APART("no part of the model"))
/* or NULL: a name or a path on the training cluster */
ARG(TEXT, tokenizer_model, TEXT_OR(NULL), WRITTEN, APART("no part of the model"))
/* or NULL: a folder in NeMo's context/ */
ARG(TEXT, nemo_tokenizer, APART("no part of the model"))
/* NullTokenizer's vocab_size holds the end of documents */
ARG(FLAG, null_tokenizer_counts_eod, APART("no part of the model"))
ARG(INT, iteration, NATURAL(0), WRITTEN, APART("compared as progress, from the states"))

#undef ARG
#undef PART
