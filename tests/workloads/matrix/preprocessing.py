import tensorflow as tf
import tensorflow_transform as tft


def preprocessing_fn(inputs):
    carrier = tft.compute_and_apply_vocabulary(
        inputs["carrier"], num_oov_buckets=1, vocab_filename="carrier"
    )
    return {
        "carrier": carrier,
        "distance": tft.scale_to_z_score(inputs["distance"]),
        "hour": tf.cast(inputs["hour"], tf.float32) / 24,
        "temp": inputs["temp"],  # sparse: missing in every tenth row
        "hours": tf.ragged.range(tf.squeeze(inputs["hour"], 1) % 5),
        "late": inputs["late"],
    }
