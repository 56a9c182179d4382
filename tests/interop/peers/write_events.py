"""DIR tensor|simple: a training loss at steps 20 and 40, by TensorBoard's own writer; as TensorFlow 2 and as torch write scalars."""
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

Value = summary_pb2.Summary.Value
writer = EventFileWriter(sys.argv[1])
for step, loss in ((20, 6.75), (40, 6.25)):
    said = {"tensor": make_tensor_proto(loss)} if sys.argv[2] == "tensor" else {"simple_value": loss}
    values = [Value(tag="train/loss", **said), Value(tag="train/grad_norm", simple_value=1)]
    writer.add_event(event_pb2.Event(wall_time=1, step=step, summary=summary_pb2.Summary(value=values)))
writer.close()
