"""tokenizer.model through SentencePiece, with what Hugging Face's Llama tokenizer adds to it.

The rules (`legacy` true, as the model's tokenizer_config.json says): texts of special tokens become
their ids; each stretch between them gets SentencePiece's space in front; BOS stands before the whole.
Decoding turns byte tokens into text, and takes one space from the very beginning away.
"""
import pathlib
import re

import sentencepiece


class LlamaTokenizer:
    def __init__(self, directory):
        path = pathlib.Path(directory) / "tokenizer.model"
        self.pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.bos, self.eos = self.pieces.bos_id(), self.pieces.eos_id()
        special = (self.pieces.unk_id(), self.bos, self.eos)
        self.special = {self.pieces.id_to_piece(i): i for i in special}
        self.special_ids = set(special)
        self.split = re.compile("(" + "|".join(re.escape(text) for text in self.special) + ")")
        self.bos_text = self.pieces.id_to_piece(self.bos)
        self.eos_text = self.pieces.id_to_piece(self.eos)

    def encode(self, text, add_bos):
        ids = [self.bos] if add_bos else []
        for part in self.split.split(text):
            if part in self.special:
                ids.append(self.special[part])
            elif part:
                ids.extend(self.pieces.encode(part))
        return ids

    def decode(self, ids, skip_special=True):
        text, run = "", bytearray()

        def of_run():
            try:
                return run.decode("utf-8")
            except UnicodeDecodeError:
                return "\ufffd" * len(run)

        for i in ids:
            if skip_special and i in self.special_ids:
                continue
            if self.pieces.is_byte(i):
                run.append(int(self.pieces.id_to_piece(i)[3:5], 16))
                continue
            text += of_run()
            run = bytearray()
            text += self.pieces.id_to_piece(i).replace("\u2581", " ")
        text += of_run()
        return text[1:] if text.startswith(" ") else text
