"""A GPT trained by muograph: nanochat's model (nanochat/gpt.py), with a switch for each of its extras.

It has no cache of keys and values: generate() recomputes the whole text for each token.
"""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_muograph import MuographConfig

VALUE_GATE_CHANNELS, SMEAR_GATE_CHANNELS = 12, 24


def norm(x):
    return F.rms_norm(x, (x.size(-1),), eps=2.0**-23)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.heads, self.kv_heads = config.n_head, config.n_kv_head
        self.head_size = config.n_embd // config.n_head
        self.qk_scale, self.window = config.qk_scale, config.window(layer)
        self.c_q = linear(config.n_embd, config.n_embd)
        self.c_k = linear(config.n_embd, self.kv_heads * self.head_size)
        self.c_v = linear(config.n_embd, self.kv_heads * self.head_size)
        self.c_proj = linear(config.n_embd, config.n_embd)
        self.ve_gate = linear(VALUE_GATE_CHANNELS, self.kv_heads) if config.has_value_embedding(layer) else None

    def forward(self, x, value_embedding, rotary, starts):
        """x: (rows, positions, width); starts: (rows, positions), the first position to which each attends."""
        rows, length, width = x.shape
        q = self.c_q(x).view(rows, length, self.heads, self.head_size)
        k = self.c_k(x).view(rows, length, self.kv_heads, self.head_size)
        v = self.c_v(x).view(rows, length, self.kv_heads, self.head_size)
        if self.ve_gate is not None:
            gate = 3 * torch.sigmoid(self.ve_gate(x[..., :VALUE_GATE_CHANNELS]))
            v = v + gate.unsqueeze(-1) * value_embedding.view_as(v)
        q, k = (self.qk_scale * norm(self.rotated(each, rotary)) for each in (q, k))
        at = torch.arange(length, device=x.device)
        first = torch.maximum(starts, at - self.window).unsqueeze(-1)
        seen = (first <= at) & (at <= at.unsqueeze(-1))
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                             attn_mask=seen.unsqueeze(1), enable_gqa=self.heads != self.kv_heads)
        return self.c_proj(out.transpose(1, 2).reshape(rows, length, width))

    @staticmethod
    def rotated(x, rotary):
        cos, sin = rotary
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos + b * sin, b * cos - a * sin), dim=-1)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        return self.c_proj(F.relu(self.c_fc(x)).square())


class Block(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        self.attn = Attention(config, layer)
        self.mlp = MLP(config)

    def forward(self, x, value_embedding, rotary, starts):
        x = x + self.attn(norm(x), value_embedding, rotary, starts)
        return x + self.mlp(norm(x))


class MuographForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = MuographConfig
    _no_split_modules = ["Block"]

    def __init__(self, config):
        super().__init__(config)
        width, layers = config.n_embd, range(config.n_layer)
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, width),
            "h": nn.ModuleList(Block(config, layer) for layer in layers),
        })
        kv_width = config.n_kv_head * (width // config.n_head)
        self.value_embeds = nn.ModuleDict({str(layer): nn.Embedding(config.vocab_size, kv_width)
                                           for layer in layers if config.has_value_embedding(layer)})
        if config.smear:
            self.smear_gate = linear(SMEAR_GATE_CHANNELS, 1)
            self.smear_lambda = nn.Parameter(torch.zeros(1))
        if config.resid_lambdas:
            self.resid_lambdas = nn.Parameter(torch.ones(config.n_layer))
        if config.x0_lambdas:
            self.x0_lambdas = nn.Parameter(torch.zeros(config.n_layer))
        if config.backout:
            self.backout_lambda = nn.Parameter(torch.zeros(1))
        self.lm_head = linear(width, config.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.transformer["wte"]

    def set_input_embeddings(self, value):
        self.transformer["wte"] = value

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, value):
        self.lm_head = value

    def forward(self, input_ids, attention_mask=None, position_ids=None, labels=None, logits_to_keep=0,
                output_hidden_states=None, return_dict=None, **kwargs):
        """The interface of models of transformers. `kwargs` go to the loss, such as Trainer's num_items_in_batch."""
        for name in ("past_key_values", "inputs_embeds", "output_attentions"):
            if kwargs.get(name) is not None and kwargs[name] is not False:
                raise ValueError(f"{type(self).__name__} does not support {name}")
        config = self.config
        starts = self.starts(input_ids, attention_mask, position_ids)
        rotary = self.rotary(torch.arange(input_ids.size(1), device=input_ids.device)
                             if position_ids is None else position_ids)
        x = norm(self.transformer["wte"](input_ids))
        if config.smear:
            gate = self.smear_lambda * torch.sigmoid(self.smear_gate(x[:, 1:, :SMEAR_GATE_CHANNELS]))
            at = torch.arange(1, input_ids.size(1), device=x.device)
            gate = torch.where((starts[:, 1:] == at).unsqueeze(-1), 0, gate)
            x = torch.cat((x[:, :1], x[:, 1:] + gate * x[:, :-1]), dim=1)
        x0 = x
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        hidden_states = ()
        for layer, block in enumerate(self.transformer["h"]):
            if output_hidden_states:
                hidden_states += (x,)
            if config.resid_lambdas:
                x = self.resid_lambdas[layer] * x
            if config.x0_lambdas:
                x = x + self.x0_lambdas[layer] * x0
            valued = config.has_value_embedding(layer)
            x = block(x, self.value_embeds[str(layer)](input_ids) if valued else None, rotary, starts)
            if layer == config.n_layer // 2:
                kept = x
        if config.backout:
            x = x - self.backout_lambda * kept
        x = norm(x)
        positions = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(x[:, positions]).float()
        if config.softcap > 0:
            logits = config.softcap * torch.tanh(logits / config.softcap)
        loss = None if labels is None else self.loss_function(logits, labels, config.vocab_size, **kwargs)
        output = CausalLMOutput(loss=loss, logits=logits,
                                hidden_states=(*hidden_states, x) if output_hidden_states else None)
        return output if (config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, logits_to_keep=0, **kwargs):
        return {"input_ids": input_ids, "attention_mask": attention_mask, "logits_to_keep": logits_to_keep}

    def starts(self, input_ids, attention_mask, position_ids):
        """The first position to which each position attends: the start of its document, after any padding on the left.
        Without a mask it is also the start of its text in a packed row, where the positions do not continue."""
        at = torch.arange(input_ids.size(1), device=input_ids.device).expand_as(input_ids)
        begins = input_ids == self.config.document_token
        if attention_mask is not None:  # each position of the padding attends to itself only
            padding = attention_mask == 0
            begins = begins | padding | F.pad(padding[:, :-1], (1, 0))
        elif position_ids is not None:
            begins = begins | (position_ids.diff(dim=-1, prepend=position_ids[..., :1]) != 1)
        return torch.where(begins, at, 0).cummax(dim=1).values

    def rotary(self, position_ids):
        """Cosines and sines, (..., positions, 1, pairs of a head)."""
        config, dtype = self.config, self.lm_head.weight.dtype
        size = config.n_embd // config.n_head
        pair = torch.arange(0, size, 2, dtype=torch.float64, device=position_ids.device)
        angles = (position_ids.double().unsqueeze(-1) * config.rope_base ** (-pair / size)).unsqueeze(-2)
        return angles.cos().to(dtype), angles.sin().to(dtype)
