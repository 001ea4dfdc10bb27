"""``config.json`` of the tiny GLM5-Next: the names that the converter and transformers read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkbuild.canary.train.nets.glm5_next import Shape

_KINDS = {"K": "linear_attention", "D": "deepseek_sparse_attention"}


def text_config(shape: Shape) -> dict[str, Any]:
    """The part ``text_config``; original and transformers' own names where they differ."""
    sparse, count = shape.sparse, len(shape.layers)
    return {
        "model_type": "glm5_next_text",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "moe_intermediate_size": shape.expert,
        "num_hidden_layers": count,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "n_shared_experts": 1,
        "n_routed_experts": shape.experts,
        "num_experts_per_tok": shape.active,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": shape.scale,
        "kv_lora_rank": shape.latent,
        "q_lora_rank": shape.rank,
        "qk_rope_head_dim": 0,
        "qk_nope_head_dim": shape.head,
        "v_head_dim": shape.head,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.eps,
        "pad_token_id": shape.pad,
        "eos_token_id": list(shape.ends),
        "layer_types": [_KINDS[kind] for kind in shape.layers],
        "mlp_layer_types": ["dense"] + ["sparse"] * (count - 1),
        "index_topk": sparse.keep,
        "index_head_dim": sparse.head,
        "index_n_heads": sparse.heads,
        "index_kpool": sparse.pool,
        "index_kpool_always_select_tail": True,
        "indexer_types": ["full"] * count,
        "linear_attn_config": {
            "head_dim": shape.linear_head,
            "num_heads": shape.heads,
            "short_conv_kernel_size": shape.taps,
            "gate_lower_bound": shape.bound,
            "safe_gate": True,
        },
        "swiglu_limit": shape.limit,
        "hc_mult": shape.streams,
        "hc_sinkhorn_iters": shape.sinkhorn,
        "hc_eps": shape.stream_eps,
        "tie_word_embeddings": False,
        "num_nextn_predict_layers": 1,
        "first_k_dense_replace": 1,
        "mla_use_nope": True,
        "mhc": True,
    }
