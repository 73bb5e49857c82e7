"""A model with the features of one cell of the matrix, its hyperparameters."""

import tensorflow as tf

WARM_UP_STEPS = 7


class InBuild(tf.keras.layers.Layer):
    """Makes its layers in `build`, as Keras recommends."""

    def __init__(self, make):
        super().__init__()
        self.make = make

    def build(self, shape):
        self.made = self.make()

    def call(self, x, training=None):
        return self.made(x, training=training)


class Sparse(tf.keras.layers.Layer):
    def call(self, x):
        return tf.reshape(tf.sparse.reduce_sum(x, 1), [-1, 1]) / 10


class Ragged(tf.keras.layers.Layer):
    def call(self, x):
        return tf.cast(tf.reduce_sum(x, 1, keepdims=True), tf.float32) / 10


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, step):
        done = tf.cast(step + 1, tf.float32) / WARM_UP_STEPS
        return self.rate * tf.minimum(done, 1.0)


def lists(keras):
    class Lists(keras.layers.Layer):
        """Keeps layers in a list, in a dict and in a tuple."""

        def __init__(self):
            super().__init__()
            self.several = [keras.layers.Dense(8, "relu") for _ in range(2)]
            self.named = {"b": keras.layers.Dense(8, "relu")}
            self.pair = (keras.layers.BatchNormalization(trainable=False),)

        def build(self, shape):
            for layer in self.several:
                layer.build((None, 8))
            self.several[0].built = True
            self.named["b"].build((None, 8))
            self.pair[0].build((None, 8))
            super().build(shape)

        def call(self, x):
            for layer in self.several:
                x = x + layer(x)
            return self.pair[0](self.named["b"](x))

    return Lists()


def normalization(keras, kind):
    normal = keras.layers.BatchNormalization
    return {
        "none": lambda: keras.layers.Identity(),
        "batch_norm": lambda: normal(momentum=0.8),
        "sync_batch_norm": lambda: normal(momentum=0.8, synchronized=True),
        "batch_norm_in_build": lambda: InBuild(lambda: normal(momentum=0.8)),
    }[kind]()


def dropout(context, keras, kind):
    return {
        "none": lambda: keras.layers.Identity(),
        "dropout": lambda: context.dropout(0.3, seed=1, keras=keras),
        "dropout_in_build": lambda: InBuild(lambda: context.dropout(0.3, seed=1)),
        "stock_dropout": lambda: keras.layers.Dropout(0.3, seed=1),
    }[kind]()


def hidden_layers(context, keras, cell, x):
    layers = keras.layers
    x = layers.Dense(8, "relu", kernel_regularizer=cell["penalty"], name="first")(x)
    x = normalization(keras, cell["normalization"])(x)
    x = dropout(context, keras, cell["dropout"])(x)
    kind = cell["layers"]
    if kind == "frozen":
        frozen = layers.Dense(8, "relu", name="frozen")
        frozen.trainable = False
        x = frozen(x)
    elif kind == "nested":
        inner = keras.Input((8,))
        x = keras.Model(inner, layers.Dense(8, "relu")(inner), name="inner")(x)
    elif kind == "shared":
        shared = layers.Dense(8, "relu", name="shared")
        x = shared(shared(x))
    elif kind == "lists":
        x = lists(keras)(x)
    return x


def optimizer(context, keras, cell):
    rates = {"SGD": 0.1, "Adadelta": 1.0, "Adagrad": 0.1, "Ftrl": 0.05, "Lion": 1e-3}
    rate = rates.get(cell["optimizer"], 1e-2)
    if cell["loss"] in ("sum", "none") and cell["optimizer"] == "SGD":
        rate = 1e-3
    if cell["rate"] == "schedule":
        steps = 2 * context.steps_per_epoch
        rate = keras.optimizers.schedules.CosineDecay(rate, steps, alpha=0.1)
    if cell["rate"] == "warm_up" and cell.get("by_hand"):
        rate = WarmUp(rate)
        if cell["keras"] == 3:
            schedule = keras.optimizers.schedules.LearningRateSchedule
            rate = type("WarmUp3", (WarmUp, schedule), {})(rate.rate)
    more = {}
    if cell["average"] != "none":
        more = {"use_ema": True, "ema_momentum": 0.8}
    if cell["average"] == "overwritten":
        more["ema_overwrite_frequency"] = 4
    if cell["clip"] != "none":
        more[cell["clip"]] = 0.05
    if cell["optimizer"] == "SGD":
        more |= {"momentum": 0.9, "nesterov": True}
    return getattr(keras.optimizers, cell["optimizer"])(rate, **more)


def loss(keras, cell):
    binary = cell["task"] == "binary"
    name = "BinaryCrossentropy" if binary else "SparseCategoricalCrossentropy"
    stock = getattr(keras.losses, name)
    if cell["loss"] in ("sum", "none"):
        if cell["loss"] == "none" and cell["keras"] == 3:
            return stock()
        return stock(reduction=cell["loss"])
    of_rows = keras.losses.binary_crossentropy
    if not binary:
        of_rows = keras.losses.sparse_categorical_crossentropy

    def mean(y, p):
        return tf.reduce_mean(of_rows(tf.cast(y, p.dtype), p))

    several = 1
    if cell.get("by_hand") and keras is tf.keras:  # it divides by the replicas
        several = tf.distribute.get_strategy().num_replicas_in_sync

    def average(y, p):
        return tf.reduce_sum(of_rows(tf.cast(y, p.dtype), p)) / 100 * several

    return {"mean": stock(), "own_mean": mean, "own_sum": average}[cell["loss"]]


def metrics(keras, cell):
    if cell["task"] == "binary":
        return [keras.metrics.AUC(name="auc"), "accuracy"]
    top = keras.metrics.SparseTopKCategoricalAccuracy(k=2, name="top_2")
    return [top, keras.metrics.SparseCategoricalAccuracy(name="right")]


def own_step(keras):
    class OwnStep(keras.Model):
        """A step of its own that returns a value which is no metric."""

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                p = self(x, training=True)
                value = self.compute_loss(x, y, p)
                scaled = value
                if keras is not tf.keras:  # for float16
                    scaled = self.optimizer.scale_loss(value)
            variables = self.trainable_variables
            if keras is tf.keras:
                self.optimizer.minimize(value, variables, tape=tape)
            else:
                self.optimizer.apply(tape.gradient(scaled, variables), variables)
            found = self.compute_metrics(x, y, p, None)
            return {
                **found,
                "squares": tf.reduce_mean(tf.square(tf.nest.flatten(p)[0])),
            }

    return OwnStep


def callbacks(context):
    """Fails after a step, as a process that is killed."""
    cell = context.hyperparameters
    done = []

    class Stops(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            done.append(batch)
            if len(done) == cell.get("stops_after"):
                raise RuntimeError("stopped")

    return [Stops()] if cell["stop"] else []


def build_model(context):
    cell = context.hyperparameters
    if cell["keras"] == 3:
        import keras
    else:
        keras = tf.keras
    layers = keras.layers
    names = ["carrier", "distance", "hour"]
    if cell["inputs"] != "dense":
        names.append({"sparse": "temp", "ragged": "hours"}[cell["inputs"]])
    inputs = {n: x for n, x in context.inputs(keras).items() if n in names}
    embedding = layers.Embedding(context.vocabulary_size("carrier") + 1, 3)
    parts = [layers.Flatten()(embedding(inputs["carrier"]))]
    x = layers.Concatenate()([*parts, inputs["distance"], inputs["hour"]])
    x = hidden_layers(context, keras, cell, x)
    if cell["inputs"] == "sparse":
        x = layers.Concatenate()([x, Sparse()(inputs["temp"])])
    elif cell["inputs"] == "ragged":
        x = layers.Concatenate()([x, Ragged()(inputs["hours"])])
    binary = cell["task"] == "binary"
    units, activation = (1, "sigmoid") if binary else (3, "softmax")
    outputs = layers.Dense(units, activation, dtype="float32", name="out")(x)
    losses = loss(keras, cell)
    measured = metrics(keras, cell)
    if cell["layers"] == "outputs":
        second = layers.Dense(units, activation, dtype="float32", name="second")(x)
        outputs = {"out": outputs, "second": second}
        losses = {"out": losses, "second": None}
        measured = {"out": measured, "second": []}
    kind = own_step(keras) if cell["step"] == "own" else keras.Model
    model = kind(inputs, outputs)
    model.compile(optimizer(context, keras, cell), losses, metrics=measured)
    return model
