"""Configuration of a GPT trained by muograph: nanochat's model, with a switch for each of its extras."""
from transformers import PretrainedConfig


class MuographConfig(PretrainedConfig):
    model_type = "muograph"
    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_key_value_heads": "n_kv_head",
        "max_position_embeddings": "seq_len",
    }

    def __init__(self, vocab_size=257, n_layer=4, n_embd=256, n_head=2, n_kv_head=2, seq_len=256, softcap=15.0,
                 value_embeddings=True, smear=True, backout=True, resid_lambdas=True, x0_lambdas=True, qk_scale=1.2,
                 window_pattern="SSSL", rope_base=100000.0, document_token=-1, **kwargs):
        self.vocab_size = vocab_size
        self.n_layer = n_layer
        self.n_embd = n_embd
        self.n_head = n_head
        self.n_kv_head = n_kv_head
        self.seq_len = seq_len  # in training; short windows are a quarter of it
        self.softcap = softcap  # 0: none
        self.value_embeddings = value_embeddings
        self.smear = smear
        self.backout = backout
        self.resid_lambdas = resid_lambdas
        self.x0_lambdas = x0_lambdas
        self.qk_scale = qk_scale
        self.window_pattern = window_pattern
        self.rope_base = rope_base
        self.document_token = document_token  # begins documents, between which there is no attention; -1: no mask
        kwargs.setdefault("tie_word_embeddings", False)
        kwargs.setdefault("use_cache", False)
        super().__init__(**kwargs)

    def window(self, layer):
        """Number of positions before a position to which it attends, besides itself."""
        long = layer == self.n_layer - 1 or self.window_pattern[layer % len(self.window_pattern)] == "L"
        return self.seq_len if long else 128 * ((self.seq_len + 511) // 512)

    def has_value_embedding(self, layer):
        return self.value_embeddings and layer % 2 == (self.n_layer - 1) % 2
