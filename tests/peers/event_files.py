"""What Aril logs, as TensorBoard's own reader sees it."""
import os
import subprocess
import sys

del sys.path[0]  # this folder, whose random.py is not Python's
import tempfile  # noqa: E402

try:
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.util import tensor_util
except ImportError:
    print("SKIP: no tensorboard package (pip install tensorboard)")
    sys.exit(77)

program = os.path.join(os.environ["ARIL_BUILD_DIR"], "tests", "test_tensorboard")
with tempfile.TemporaryDirectory() as folder:
    subprocess.run([program, "file_contains_everything"], check=True,
                   env=dict(os.environ, ARIL_TENSORBOARD_OUT=folder), stdout=subprocess.DEVNULL)
    run = os.path.join(folder, "runs", "one")
    log = event_accumulator.EventAccumulator(run, size_guidance={"tensors": 0, "histograms": 0, "images": 0})
    log.Reload()
    tags = log.Tags()
    assert set(tags["scalars"]) == {"loss/train", "accuracy"}, tags["scalars"]
    loss = log.Scalars("loss/train")
    assert [e.step for e in loss] == list(range(50))
    assert abs(loss[10].value - 2.718281828 ** -1) < 1e-6
    histogram = log.Histograms("weights/w1")[4].histogram_value
    assert histogram.num == 1000 and sum(histogram.bucket) == 1000 and len(histogram.bucket) == len(histogram.bucket_limit)
    assert abs(histogram.sum / histogram.num - 4) < 0.3
    image = log.Images("ramp")[0]
    assert (image.width, image.height) == (48, 32) and image.encoded_image_string[:4] == b"\x89PNG"
    assert set(tags["images"]) == {"ramp", "sheet"}
    text = tensor_util.make_ndarray(log.Tensors("notes")[0].tensor_proto)
    assert text[0] == b"A **run** of `Aril`", text
    curve = tensor_util.make_ndarray(log.Tensors("classes/0")[0].tensor_proto)
    assert curve.shape == (6, 127)
    assert (curve[0] + curve[3] == curve[0][0] + curve[3][0]).all()      # positives are as many everywhere
    assert curve[5][0] == 1 and (curve[5][:-1] >= curve[5][1:]).all()    # recall falls from 1
    graph = log.Graph()
    assert [n.name for n in graph.node] == ["x", "net/fc", "net/relu"] and graph.node[2].input == ["net/fc"]
    content = log.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert started["lr"].number_value == 0.1 and started["optimizer"].string_value == "sgd"
    try:
        from google.protobuf import text_format
        from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
        with open(os.path.join(run, "projector_config.pbtxt")) as f:
            config = text_format.Parse(f.read(), ProjectorConfig())
        assert config.embeddings[0].tensor_name == "digits" and list(config.embeddings[0].sprite.single_image_dim) == [12, 12]
        with open(os.path.join(run, config.embeddings[0].tensor_path)) as f:
            rows = f.read().splitlines()
        assert len(rows) == 10 and len(rows[0].split("\t")) == 8
    except ImportError:
        pass
print("scalars, histograms, images, texts, curves, the graph, hyper-parameters and points are read back")
