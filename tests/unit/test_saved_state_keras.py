"""Models of Keras come back as the objects that they are, with all that they share, and Keras as cells have set it."""

from __future__ import annotations

import pytest

from saved_state_processes import carried

IMPORTS = """
import warnings
warnings.simplefilter("ignore")
import keras, numpy as np
from keras import layers
x, y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")
#%%
"""
SHARED = (
    IMPORTS
    + """
class Scale(layers.Layer):
    def __init__(self, factor):  # and no configuration
        super().__init__()
        self.factor = factor
    def call(self, x):
        return x * self.factor
i = keras.Input((3,))
base = keras.Model(i, layers.Dense(4, name="inner")(Scale(3.0)(i)))
base.trainable = False
model = keras.Sequential([base, layers.Dropout(0.5), layers.Dense(2)])
model.compile(loss="mse", optimizer=keras.optimizers.AdamW())
history = model.fit(x, y, verbose=0, epochs=2)
inner, was = base.get_layer("inner"), model.predict(x, verbose=0)
"""
)
STILL_SHARED = """
import numpy as np
assert model.layers[0] is base and base.layers[1].factor == 3.0 and type(base.layers[1]) is Scale
assert base.get_layer("inner") is inner and history.model is model and len(history.history["loss"]) == 2
assert np.allclose(model.predict(x, verbose=0), was)
model.fit(x, y, verbose=0)
assert int(model.optimizer.iterations) == 3 and len(model.trainable_weights) == 2
base.trainable = True
assert len(model.trainable_weights) == 4
kernel = np.array(inner.kernel)
model.compile(loss="mse", optimizer="adam")
model.fit(x, y, verbose=0)
assert not np.allclose(kernel, np.array(inner.kernel)) and len(base.get_config()["layers"]) == 3
more = layers.Dense(2)
assert more.name == "dense_1", more.name
assert keras.Model(base.input, more(base.output)).predict(x, verbose=0).shape == (4, 2)
"""
VAE = (
    IMPORTS
    + """
class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seeds = keras.random.SeedGenerator(1337)
    def call(self, parts):
        mean, spread = parts
        return mean + keras.ops.exp(spread / 2) * keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
i = keras.Input((3,))
hidden = layers.Dense(4, activation="relu")(i)
parts = [layers.Dense(2, name="mean")(hidden), layers.Dense(2, name="spread")(hidden)]
encoder = keras.Model(i, [*parts, Sampling()(parts)])
i = keras.Input((2,))
decoder = keras.Model(i, layers.Dense(3)(layers.Dense(4)(i)))
class VAE(keras.Model):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder, self.kept = encoder, decoder, [encoder, {"also": decoder}]
        self.tracker = keras.metrics.Mean(name="kl")
    def call(self, x):
        mean, spread, z = self.encoder(x)
        self.add_loss(keras.ops.mean(mean ** 2 + spread ** 2))
        return self.decoder(z)
vae = VAE(encoder, decoder)
vae.compile(loss="mse", optimizer=keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)))
vae.fit(x, x, epochs=2, verbose=0)
best, was = [vae.get_weights()], decoder.predict(x[:, :2], verbose=0)
"""
)
STILL_A_VAE = """
import numpy as np
assert vae.encoder is encoder and vae.decoder is decoder and vae.kept[0] is encoder and vae.kept[1]["also"] is decoder
assert np.allclose(decoder.predict(x[:, :2], verbose=0), was) and int(encoder.layers[-1].seeds.state[1]) > 0
vae.fit(x, x, verbose=0)
assert int(vae.optimizer.iterations) == 3 and not np.allclose(decoder.predict(x[:, :2], verbose=0), was)
vae.set_weights(best[0])
assert np.allclose(decoder.predict(x[:, :2], verbose=0), was)
"""
DEEP = (
    IMPORTS
    + """
i = out = keras.Input((3,))
for _ in range(150):
    out = layers.Add()([out, layers.Dense(3, kernel_initializer="zeros")(out)])
model = keras.Model(i, out)
names, last = [layer.name for layer in model.layers], model.layers[-1]
"""
)
STILL_DEEP = """
assert [layer.name for layer in model.layers] == names and model.layers[-1] is last
assert (model.predict(x, verbose=0) == x).all()
"""
TOLD = (
    IMPORTS
    + """
@keras.saving.register_keras_serializable(package="mine")
class Triple(layers.Layer):
    def call(self, x): return 3 * x
def twice(x): return 2 * x
keras.utils.get_custom_objects()["twice"] = twice
keras.mixed_precision.set_global_policy("mixed_float16")
keras.config.set_epsilon(1e-5); keras.config.disable_interactive_logging()
def draw(): return keras.ops.convert_to_numpy(keras.random.normal((2,)))
keras.utils.set_random_seed(7); draw(); expected = draw()
keras.utils.set_random_seed(7); draw()
model = keras.Sequential([keras.Input((3,)), Triple(), layers.Dense(2, activation=twice)])
text = model.to_json()
"""
)
STILL_TOLD = """
assert type(keras.models.model_from_json(text).layers[0]) is Triple
assert keras.saving.get_registered_name(Triple) == "mine>Triple" and keras.utils.get_custom_objects()["twice"] is twice
assert keras.config.dtype_policy().name == "mixed_float16" and keras.config.epsilon() == 1e-5
assert not keras.config.is_interactive_logging_enabled() and (draw() == expected).all()
"""
BROKEN = (
    IMPORTS
    + """
class Holder: pass
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner, self.pieces = layers.Dense(1), (piece for piece in ())
    def call(self, x): return self.inner(x)
one, other, broken = Holder(), Holder(), Model()
broken(x)
base = keras.Sequential([keras.Input((3,)), layers.Dense(4)])
model = keras.Sequential([base, layers.Dense(2)])
model.compile(loss="mse", optimizer="adam")
model.fit(x, y, verbose=0)
one.model, one.pieces, other.base, other.pieces = model, broken.pieces, base, broken.pieces
was, optimizer = model.predict(x, verbose=0), model.optimizer
"""
)
STILL_BESIDE_IT = """
assert model.layers[0] is base and model.optimizer is optimizer and (model.predict(x, verbose=0) == was).all()
model.fit(x, y, verbose=0)
"""
LONG = pytest.mark.long("models of Keras")
STATES = [
    pytest.param(SHARED, STILL_SHARED, id="what a model shares with names"),
    pytest.param(VAE, STILL_A_VAE, id="a model of a class of cells", marks=LONG),
    pytest.param(DEEP, STILL_DEEP, id="hundreds of layers", marks=LONG),
    pytest.param(TOLD, STILL_TOLD, id="what Keras was told", marks=LONG),
]


@pytest.mark.parametrize(("before", "after"), STATES)
def test_it_is_as_it_was_in_the_next_process(before: str, after: str) -> None:
    assert carried(before, after, "keras") == []


@pytest.mark.long("models of Keras")
def test_what_cannot_be_kept_of_one_takes_no_other_along() -> None:
    why = "it holds a generator"
    assert carried(BROKEN, STILL_BESIDE_IT, "keras") == [[name, why] for name in ("one", "other", "broken")]
