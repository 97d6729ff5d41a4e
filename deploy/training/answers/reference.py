"""Writes the shipped reader's results for a few texts, by PyTorch: the engine's tests compare its own network with
them."""

import argparse
import json
from pathlib import Path

import torch

from .companies import Company, Section, Turn
from .intents import told_by
from .reader import Near
from .shipped import shipped

TURNS = {
    "en": [
        ("how long have i got to send the lamp back", []),
        ("and without the box?", [("user", "how long have i got to send the lamp back"), ("system", "You have 30 days.")]),
        ("get me a human, now", []),
    ],
    "zh": [
        ("灯不想要了，几天内能退", []),
        ("盒子扔了呢", [("user", "灯不想要了，几天内能退"), ("system", "收到之日起30天内。")]),
        ("叫个真人来", []),
    ],
}
SECTIONS = {
    "en": [
        Section(
            "",
            "Returns: How long you have",
            ["You have 30 days from the day it arrives.", "Lamps that were opened need their box.", "We pay the postage."],
        ),
        Section("", "Oslo lamp", ["id: L-7", "name: Oslo lamp", "price: £49", "colour: blue"]),
    ],
    "zh": [
        Section("", "退货: 期限", ["收到之日起30天内可以退货。", "拆封的灯具须保留原包装盒。", "退货运费由我们承担。"]),
        Section("", "奥斯陆台灯", ["编号: L-7", "名称: 奥斯陆台灯", "价格_元: 399", "颜色: 蓝"]),
    ],
}


def main():
    parser = argparse.ArgumentParser(prog="python -m answers.reference", description=__doc__)
    parser.add_argument("--reader", type=Path, required=True, help="reader-en.safetensors.zst, or the one of another language")
    parser.add_argument("--out", type=Path, required=True, help="the fixture")
    args = parser.parse_args()
    it = shipped(args.reader)
    words, bert, reader, texts, language = it.words, it.bert, it.reader, it.texts, it.language
    made = []
    calibration = json.loads(args.reader.with_name(f"calibration-{language}.json").read_text())
    sections = SECTIONS[language]
    slope, offset = calibration["slope"], calibration["offset"]
    with torch.no_grad():
        turns = []
        for at, (text, history) in enumerate(TURNS[language]):
            said = [{"speaker": speaker, "text": said} for speaker, said in history]
            turns.append(Turn(str(at), "document", text, said, [], []))
        near = Near(bert, words, Company("", sections, turns))
        for turn in turns:
            found = reader(texts.rows([(turn, section, near.of(turn, section)) for section in sections]))
            scores = [(slope * it + offset).tolist() for it in found]
            inputs = told_by(bert, words, [turn.text], len(reader.upper))[0]
            intents, vector = it.intents(inputs).softmax(0).tolist(), inputs[-bert.words.embedding_dim :]
            before = {f"{it['speaker']}_before": it["text"] for it in turn.history}
            question = {"utterance": turn.text, "user_before": None, "system_before": None} | before
            made.append({"question": question, "scores": scores, "intents": intents, "vector": vector[:8].tolist()})
    sections = [{"title": it.title, "sentences": it.sentences} for it in sections]
    args.out.write_text(json.dumps({"sections": sections, "turns": made}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
