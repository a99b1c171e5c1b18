"""A model folder without weights: byte-level tokenizer, chat template, configuration."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

VOCAB_SIZE = 1500
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model_folder(path: Path) -> Path:
    """Ids: three control tokens, the 256 bytes, then words `` w259`` and so on, decodable only."""
    path.mkdir(parents=True)
    control = ["<unk>", "<|im_start|>", "<|im_end|>"]
    names = [*control, *sorted(ByteLevel.alphabet())]
    names += [f"Ġw{i}" for i in range(len(names), VOCAB_SIZE)]
    vocab = {name: i for i, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in control])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 8192,
        "eos_token_id": 2,
        "rms_norm_eps": 1e-5,
    }
    (path / "config.json").write_text(json.dumps(config))
    settings = {"eos_token": "<|im_end|>", "add_bos_token": False, "chat_template": TEMPLATE}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def make_weights(folder: Path) -> None:
    """Random ones, the same each time, for the configuration that lies there."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
