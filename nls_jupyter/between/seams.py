"""The names of other packages that we use although nobody has promised them: private ones, and what we replace.

Who uses one asks for it here. A version without it is told in one sentence, with what does not work: before the first
GPU cell, of what every kernel has; of a library once the user has imported it. Nothing is imported to find that out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.between.seam import Seam

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


# -- Python -----------------------------------------------------------------------------------------------------------
_PYTHON = "3.11 to 3.14"

INTERPRETER_FLAGS: Final = Seam(
    "subprocess",
    "_args_from_interpreter_flags",
    _PYTHON,
    "the GPU process starts without the options -X, -W and -O",
)
PYTHON_UNPICKLER: Final = Seam(
    "pickle", "_Unpickler", _PYTHON, "a variable that cannot come back takes along all that share something with it"
)
SIGNALS: Final = Seam("signal", "_signal", _PYTHON, "each cell costs some microseconds more")
SLOT_NAMES: Final = Seam(
    "copyreg", "_slotnames", _PYTHON, "what pickle notes in a class, its `__slotnames__`, stays there after a save"
)
OVERLOADS: Final = Seam(
    "typing",
    "_overload_registry",
    _PYTHON,
    "typing.get_overloads finds none of before the GPU process was started anew",
)
ABC_CONTENT: Final = Seam("abc:ABC", "_abc_impl", _PYTHON, "abstract classes of cells may not come back")
URL_OPENER: Final = Seam(
    "urllib.request", "_opener", _PYTHON, "an opener of URLs that cells install does not come back with the GPU process"
)
XML_PREFIXES: Final = Seam(
    "xml.etree.ElementTree",
    "_namespace_map",
    _PYTHON,
    "prefixes of XML that cells register do not come back with the GPU process",
)
RLOCK_IS_OWNED: Final = Seam("_thread:RLock", "_is_owned", _PYTHON, "re-entrant locks are not saved")
THREAD_TARGET: Final = Seam(
    "threading:Thread", "_target", _PYTHON, "nobody is told which threads end with the GPU process", set_in="__init__"
)

# -- cloudpickle ------------------------------------------------------------------------------------------------------
_CLOUDPICKLE = "3.0 to 3.1"

FUNCTION_REDUCE: Final = Seam(
    "cloudpickle.cloudpickle:Pickler", "_function_reduce", _CLOUDPICKLE, "functions of cells are not saved"
)
CLASS_TRACKER: Final = Seam(
    "cloudpickle.cloudpickle",
    "_lookup_class_or_track",
    _CLOUDPICKLE,
    "classes of cells with a metaclass of their own do not come back",
)
CLASSES_BY_NUMBER: Final = Seam(
    "cloudpickle.cloudpickle",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    _CLOUDPICKLE,
    "libraries hear twice of some classes of cells that come back",
)
CLASS_BY_REFERENCE: Final = Seam(
    "cloudpickle.cloudpickle", "_should_pickle_by_reference", _CLOUDPICKLE, "enumerations of cells are not saved"
)
CLASS_CONTENT: Final = Seam(
    "cloudpickle.cloudpickle", "_class_getstate", _CLOUDPICKLE, "enumerations of cells are not saved"
)
CLASS_NUMBER: Final = Seam(
    "cloudpickle.cloudpickle", "_get_or_create_tracker_id", _CLOUDPICKLE, "enumerations of cells are not saved"
)
GIVE_TO_CLASS: Final = Seam(
    "cloudpickle.cloudpickle", "_class_setstate", _CLOUDPICKLE, "enumerations of cells are not saved"
)

# -- IPython ----------------------------------------------------------------------------------------------------------
_IPYTHON = "8.10 to 9.18"
_SHELL = "IPython.core.interactiveshell:InteractiveShell"
_NO_START = "the GPU process does not start"

SHOW_TRACEBACK: Final = Seam(
    _SHELL,
    "_showtraceback",
    _IPYTHON,
    "what ends a GPU cell and has been shown, as exception groups are, is shown twice, and what a forked child raises "
    "is lost or shown as the cell's",
)
RUN_AST_NODES: Final = Seam(_SHELL, "run_ast_nodes", _IPYTHON, "a UsageError in a GPU cell is shown twice")
RUN_CELL_ASYNC: Final = Seam(_SHELL, "run_cell_async", _IPYTHON, _NO_START)
SHOWTRACEBACK: Final = Seam(_SHELL, "showtraceback", _IPYTHON, _NO_START)
GET_EXC_INFO: Final = Seam(
    _SHELL,
    "_get_exc_info",
    _IPYTHON,
    "%tb does not say that the traceback of the last error ended with its GPU process",
)
SHOW_USAGE_ERROR: Final = Seam(_SHELL, "show_usage_error", _IPYTHON, _NO_START)
CELL_NUMBERS: Final = Seam(
    "IPython.core.compilerop:CachingCompiler",
    "_filename_map",
    _IPYTHON,
    "the sources of earlier cells are missing in tracebacks when the GPU process is back",
    set_in="__init__",
)
LAST_INPUT: Final = Seam(
    "IPython.core.history:HistoryManager",
    "_i00",
    _IPYTHON,
    "the names of the last cells, such as _i, do not come back with the GPU process",
)
RELOADER: Final = Seam(
    "IPython.extensions.autoreload:AutoreloadMagics",
    "_reloader",
    _IPYTHON,
    "what %autoreload has set does not come back with the GPU process",
    set_in="__init__",
)

# -- ipykernel --------------------------------------------------------------------------------------------------------
_IPYKERNEL = "6.29 to 7.4"
_ZMQ_SHELL = "ipykernel.zmqshell:ZMQInteractiveShell"
_KERNEL = "ipykernel.ipkernel:IPythonKernel"

LAST_TRACEBACK: Final = Seam(
    _ZMQ_SHELL,
    "_last_traceback",
    _IPYKERNEL,
    "the reply to a GPU cell that an exception group ended is without its traceback",
    set_in="_showtraceback",
)
ASK_EXIT: Final = Seam(_ZMQ_SHELL, "ask_exit", _IPYKERNEL, "exit() in a GPU cell ends the GPU process")
OUTPUT_HOOKS: Final = Seam(
    "ipykernel.zmqshell:ZMQDisplayPublisher",
    "_hooks",
    _IPYKERNEL,
    "what was registered by register_hook does not see the outputs of %%gpu cells",
)
ALLOW_STDIN: Final = Seam(_KERNEL, "_allow_stdin", _IPYKERNEL, "input() does not work in cells of auto mode")
EXECUTE_SLEEP: Final = Seam(_KERNEL, "_execute_sleep", _IPYKERNEL, "each cell in auto mode takes longer")
CANCEL_ON_SIGINT: Final = Seam(
    _KERNEL,
    "_cancel_on_sigint",
    _IPYKERNEL,
    "GpuReclaimed may not reach a GPU cell that awaits, which then ends with its process",
)
EXECUTE_REQUEST: Final = Seam(
    _KERNEL,
    "execute_request",
    _IPYKERNEL,
    "GPU cells may run twice when their process dies, and count for themselves",
)
SET_PARENT: Final = Seam(
    _KERNEL, "set_parent", _IPYKERNEL, "what a thread prints after its GPU cell was saved is not shown"
)
PRE_HANDLER_HOOK: Final = Seam(
    _KERNEL, "pre_handler_hook", _IPYKERNEL, "GpuReclaimed may come in a later cell than it was meant for"
)
DO_DEBUG_REQUEST: Final = Seam(_KERNEL, "do_debug_request", _IPYKERNEL, "auto mode cannot be switched on")
INIT_IOPUB: Final = Seam(
    "ipykernel.kernelapp:IPKernelApp",
    "init_iopub",
    _IPYKERNEL,
    "a GPU cell with very much output may never end",
)
FLUSH_PENDING: Final = Seam(
    "ipykernel.iostream:OutStream", "_flush_pending", _IPYKERNEL, "each GPU cell takes longer", set_in="__init__"
)
PUBLISH_STATUS: Final = Seam(_KERNEL, "_publish_status", _IPYKERNEL, "each request to the GPU process takes longer")
SHELL_MAIN: Final = Seam(
    _KERNEL,
    "shell_main",
    "7.0 to 7.4",
    "each request to the GPU process takes longer",
    when_asked=True,  # ipykernel 6 has none
)

# -- traitlets, comm, ipywidgets --------------------------------------------------------------------------------------
_TRAITLETS, _COMM, _IPYWIDGETS = "5.14 to 5.16", "0.1 to 0.2", "8.1"
_TRAITS = "traitlets.traitlets:HasTraits"
_BASE_COMM = "comm.base_comm:BaseComm"
_NO_TRAITS = "widgets and other objects with traits are not saved"
_NO_COMMS = "widgets are not saved"

TRAIT_VALUES: Final = Seam(
    _TRAITS,
    "_trait_values",
    _TRAITLETS,
    "what %config has set does not come back with the GPU process",
    set_in="setup_instance",
)
TRAIT_NOTIFIERS: Final = Seam(_TRAITS, "_trait_notifiers", _TRAITLETS, _NO_TRAITS, set_in="setup_instance")
TRAIT_VALIDATORS: Final = Seam(_TRAITS, "_trait_validators", _TRAITLETS, _NO_TRAITS, set_in="setup_instance")
ADD_NOTIFIERS: Final = Seam(_TRAITS, "_add_notifiers", _TRAITLETS, "objects whose traits are observed do not come back")

COMM_CLOSED: Final = Seam(_BASE_COMM, "_closed", _COMM, _NO_COMMS, set_in="__init__")
COMM_ON_MESSAGE: Final = Seam(_BASE_COMM, "_msg_callback", _COMM, _NO_COMMS, set_in="__init__")
COMM_ON_CLOSE: Final = Seam(_BASE_COMM, "_close_callback", _COMM, _NO_COMMS, set_in="__init__")

WIDGET_ON_MESSAGE: Final = Seam(
    "ipywidgets.widgets.widget:Widget", "_handle_msg", _IPYWIDGETS, "widgets do not come back"
)
WIDGETS_BY_ID: Final = Seam(
    "ipywidgets.widgets.widget", "_instances", _IPYWIDGETS, "widgets that come back are not found by their ids"
)

# -- matplotlib, pandas, SymPy ----------------------------------------------------------------------------------------
_PANDAS, _SYMPY = "2.1 to 3.1", "1.11 to 1.14"
_PANDAS_CONFIG = "pandas._config.config"
_NO_OPTIONS = "pandas' options do not come back with the GPU process"
_NO_SHARES = "a write to a table of pandas that has come back changes others that show its memory, too"
_NO_FIGURES = "figures that only pyplot has do not come back, and another one may be its current one"
_NO_PRINTING = "what sympy.init_printing has set does not come back with the GPU process"

MATPLOTLIB_BACKEND: Final = Seam(
    "matplotlib.pyplot", "_backend_mod", "3.8 to 3.11", "matplotlib's backend does not come back with the GPU process"
)
COLORMAPS: Final = Seam(
    "matplotlib.cm:ColormapRegistry",
    "_cmaps",
    "3.8 to 3.11",
    "colormaps that cells register do not come back with the GPU process",
    set_in="__init__",
)
COLOR_SEQUENCES: Final = Seam(
    "matplotlib.colors:ColorSequenceRegistry",
    "_color_sequences",
    "3.8 to 3.11",
    "color sequences that cells register do not come back with the GPU process",
    set_in="__init__",
)
CALLBACK_NUMBERS: Final = Seam(
    "matplotlib.cbook:CallbackRegistry",
    "_cid_gen",
    "3.8 to 3.11",
    "figures are written again by each save",
    set_in="__init__",
)
MATPLOTLIB_SCALES: Final = Seam(
    "matplotlib.scale",
    "_scale_mapping",
    "3.8 to 3.11",
    "scales that cells register do not come back with the GPU process",
)
TRANSFORM_PARENTS: Final = Seam(
    "matplotlib.transforms:TransformNode",
    "_parents",
    "3.8 to 3.11",
    "figures take longer to be looked at",
    set_in="__init__",
)
COLORIZER: Final = Seam(
    "matplotlib.colorizer:_ScalarMappable",
    "_colorizer",
    "3.10 to 3.11",
    "a colorbar of colors without a picture does not follow them after the GPU process was started anew",
    set_in="__init__",
    when_asked=True,  # before 3.10 they have none
)
PYPLOT_FIGURES: Final = Seam("matplotlib._pylab_helpers:Gcf", "figs", "3.8 to 3.11", _NO_FIGURES)
PYPLOT_ADOPT: Final = Seam("matplotlib._pylab_helpers:Gcf", "_set_new_active_manager", "3.8 to 3.11", _NO_FIGURES)
PANDAS_OPTIONS: Final = Seam(_PANDAS_CONFIG, "_registered_options", _PANDAS, _NO_OPTIONS)
PANDAS_VALUES: Final = Seam(_PANDAS_CONFIG, "_global_config", _PANDAS, _NO_OPTIONS)
PANDAS_DEPRECATED: Final = Seam(_PANDAS_CONFIG, "_deprecated_options", _PANDAS, _NO_OPTIONS)
PANDAS_DATA_TYPES: Final = Seam(
    "pandas.core.dtypes.base",
    "_registry",
    _PANDAS,
    "data types that cells register do not come back with the GPU process",
)
PANDAS_SHARES: Final = Seam("pandas._libs.internals", "BlockValuesRefs", _PANDAS, _NO_SHARES)
PANDAS_BLOCK: Final = Seam("pandas.core.internals.blocks", "Block", _PANDAS, _NO_SHARES)
PANDAS_SERIES: Final = Seam("pandas.core.internals.managers", "SingleBlockManager", _PANDAS, _NO_SHARES)
PANDAS_INDEX: Final = Seam("pandas.core.indexes.base", "Index", _PANDAS, _NO_SHARES)
PANDAS_INDEX_SHARES: Final = Seam("pandas:Index", "_references", _PANDAS, _NO_SHARES)
SYMPY_SETTINGS: Final = Seam("sympy.printing.printer:Printer", "_global_settings", _SYMPY, _NO_PRINTING)
SYMPY_PRINTABLE: Final = Seam("sympy.core._print_helpers", "Printable", _SYMPY, _NO_PRINTING)
SYMPY_NOT_SHOWN: Final = Seam("sympy.core._print_helpers:Printable", "_repr_disabled", _SYMPY, _NO_PRINTING)
ALTAIR_PLUGINS: Final = Seam(
    "altair.utils.plugin_registry:PluginRegistry",
    "_plugins",
    "5.0 to 6.3",
    "altair's settings, and themes and renderers of cells, do not come back with the GPU process",
    set_in="__init__",
)

# -- MLflow, Pyro, pint -----------------------------------------------------------------------------------------------
_PYRO_STORE, _NO_PARAMETERS = "pyro.params.param_store:ParamStoreDict", "parameters of Pyro are not saved"

MLFLOW_EXPERIMENT: Final = Seam(
    "mlflow.tracking.fluent",
    "_active_experiment_id",
    "3.17",
    "runs of MLflow that begin after a move are in the default experiment",
)
PYRO_PARAMETERS: Final = Seam(_PYRO_STORE, "_params", "1.9", _NO_PARAMETERS, set_in="__init__")
PYRO_CONSTRAINTS: Final = Seam(_PYRO_STORE, "_constraints", "1.9", _NO_PARAMETERS, set_in="__init__")
PINT_REGISTRY_OF: Final = Seam(
    "pint.util:SharedRegistryObject", "_REGISTRY", "0.24 to 0.25", "quantities of pint are not saved", set_in="__new__"
)
PINT_REGISTRY: Final = Seam(
    "pint", "_DEFAULT_REGISTRY", "0.24 to 0.25", "pint's own registry is saved as if a cell had made it"
)

# -- gin-config -------------------------------------------------------------------------------------------------------
_GIN, _NO_PARAMETERS_OF_GIN = "0.5", "what cells tell gin-config does not come back with the GPU process"

GIN_CONFIGURABLES: Final = Seam("gin.config", "_REGISTRY", _GIN, _NO_PARAMETERS_OF_GIN)
GIN_CONFIGURABLES_OF: Final = Seam("gin.config", "_INVERSE_REGISTRY", _GIN, _NO_PARAMETERS_OF_GIN)
GIN_CONSTANTS: Final = Seam("gin.config", "_CONSTANTS", _GIN, _NO_PARAMETERS_OF_GIN)
GIN_PARAMETERS: Final = Seam("gin.config", "_CONFIG", _GIN, _NO_PARAMETERS_OF_GIN)

# -- loguru -----------------------------------------------------------------------------------------------------------
_LOGURU, _NO_LOGGERS = "0.7", "loguru's logger, and what cells have told it, do not come back with the GPU process"
_FILE_SINK, _NO_FILE_SINKS = "loguru._file_sink:FileSink", "files that loguru writes do not come back"

LOGURU_CORE: Final = Seam("loguru._logger:Logger", "_core", _LOGURU, _NO_LOGGERS, set_in="__init__")
LOGURU_SINK: Final = Seam("loguru._handler:Handler", "_sink", _LOGURU, _NO_FILE_SINKS, set_in="__init__")
LOGURU_FILE: Final = Seam(_FILE_SINK, "_file_path", _LOGURU, _NO_FILE_SINKS, set_in="__init__")
LOGURU_OPEN: Final = Seam(_FILE_SINK, "_create_file", _LOGURU, _NO_FILE_SINKS)

# -- SQLAlchemy -------------------------------------------------------------------------------------------------------
_SQLALCHEMY, _NO_EVENTS = "2.0 to 2.1", "engines of SQLAlchemy come back without what listens to their events"

SQLALCHEMY_EVENTS: Final = Seam("sqlalchemy.event.base", "_DispatchCommon", _SQLALCHEMY, _NO_EVENTS)
SQLALCHEMY_EVENT_NAMES: Final = Seam("sqlalchemy.event.base:_Dispatch", "_event_descriptors", _SQLALCHEMY, _NO_EVENTS)
SQLALCHEMY_KINDS_OF_EVENTS: Final = Seam("sqlalchemy.event.base", "_registrars", _SQLALCHEMY, _NO_EVENTS)
SQLALCHEMY_LISTENERS: Final = Seam(
    "sqlalchemy.event.attr:_ClsLevelDispatch", "_clslevel", _SQLALCHEMY, _NO_EVENTS, set_in="__init__"
)
SQLALCHEMY_WITHIN_LOOP: Final = Seam(
    "sqlalchemy.event.attr:_CompoundListener",
    "_is_asyncio",
    _SQLALCHEMY,
    "SQLAlchemy's engines for asyncio may freeze when they come back",
    set_in="__init__",
)
SQLALCHEMY_KEY: Final = Seam("sqlalchemy.event.registry", "_EventKey", _SQLALCHEMY, _NO_EVENTS)
SQLALCHEMY_LISTENED_TO: Final = Seam("sqlalchemy.engine:Connection", "_has_events", _SQLALCHEMY, _NO_EVENTS)
SQLALCHEMY_SESSIONS: Final = Seam(
    "sqlalchemy.orm.session",
    "_sessions",
    _SQLALCHEMY,
    "objects of SQLAlchemy's sessions come back as objects of no session",
)

# -- JAX, Numba, CuPy -------------------------------------------------------------------------------------------------
_CUPY = "13.6 to 14.2"

JAX_ARRAY: Final = Seam("jax._src.array", "ArrayImpl", "0.4 to 0.10", "JAX arrays are saved as JAX itself pickles them")
NUMBA_STATE: Final = Seam(
    "numba.core.serialize:ReduceMixin",
    "_reduce_states",
    "0.59 to 0.68",
    "what Numba has compiled is pickled anew at each save",
)
NUMBA_STARTED: Final = Seam(
    "numba.np.ufunc.parallel",
    "_is_initialized",
    "0.59 to 0.68",
    "numba.set_num_threads does not come back with the GPU process",
)
CUPY_POOL: Final = Seam(
    "cupy", "_default_memory_pool", _CUPY, "cupy.get_default_memory_pool() is another pool than the one in use"
)
_CUDF, _WHOLE = "26.10", "objects of cuDF are copied to the host as a whole before they are saved"
CUDF_SERIALIZABLE: Final = Seam("cudf.core.abc", "Serializable", _CUDF, _WHOLE)
CUDF_BUFFER: Final = Seam("cudf.core.buffer", "as_buffer", _CUDF, "objects of cuDF do not come back")
CUPY_JIT: Final = Seam(
    "cupyx.jit._interface", "_JitRawKernel", _CUPY, "kernels of cupyx.jit that have run are named instead of saved"
)
CUPY_RANDOM: Final = Seam(
    "cupy.random", "_generator._random_states", _CUPY, "whether CuPy's random numbers begin anew is not told"
)

# -- PyTorch ----------------------------------------------------------------------------------------------------------
_TORCH = "2.13"
_TORCH_MODULES, _TORCH_OPTIMIZERS = "torch.nn.modules.module", "torch.optim.optimizer"
_NO_TENSORS = "PyTorch's tensors are not saved"
_NO_HOOKS = "hooks of all modules and optimizers of PyTorch do not come back with the GPU process"

TORCH_WHEN_READY: Final = Seam(
    "torch.cuda", "_lazy_call", _TORCH, "PyTorch is not held to this notebook's share of the GPU"
)
TORCH_OUT_OF_MEMORY: Final = Seam(
    "torch",
    "_C._cuda_attach_out_of_memory_observer",
    _TORCH,
    "where PyTorch runs out of memory, the scheduler is not asked for more",
    when_asked=True,  # builds without CUDA do not have it
)
TORCH_KERNEL: Final = Seam(
    "torch.cuda",
    "_utils._cuda_load_module",
    "2.9 to 2.13",
    "PyTorch's memory on a Gpu takes longer to be looked at",
    when_asked=True,  # before 2.8 there is none; later it may be public
)
TORCH_SHARED: Final = Seam(
    "torch.multiprocessing.reductions",
    "shared_cache",
    "2.4 to 2.13",
    "whether PyTorch shares memory of a GPU with other processes is left to its driver to find",
)
TORCH_SHARED_STORAGE: Final = Seam(
    "torch:UntypedStorage",
    "_new_with_weak_ptr",
    "2.4 to 2.13",
    "whether PyTorch shares memory of a GPU with other processes is left to its driver to find",
)
TORCH_STORAGE: Final = Seam("torch:UntypedStorage", "_cdata", _TORCH, _NO_TENSORS)
TORCH_HOOKS: Final = Seam("torch:Tensor", "_backward_hooks", _TORCH, _NO_TENSORS)
TORCH_GRADIENT_HOOKS: Final = Seam("torch:Tensor", "_post_accumulate_grad_hooks", _TORCH, _NO_TENSORS)
TORCH_FORWARD_PRE_HOOKS: Final = Seam(_TORCH_MODULES, "_global_forward_pre_hooks", _TORCH, _NO_HOOKS)
TORCH_FORWARD_HOOKS: Final = Seam(_TORCH_MODULES, "_global_forward_hooks", _TORCH, _NO_HOOKS)
TORCH_HOOKS_WITH_KEYWORDS: Final = Seam(_TORCH_MODULES, "_global_forward_hooks_with_kwargs", _TORCH, _NO_HOOKS)
TORCH_HOOKS_ALWAYS_CALLED: Final = Seam(_TORCH_MODULES, "_global_forward_hooks_always_called", _TORCH, _NO_HOOKS)
TORCH_BACKWARD_PRE_HOOKS: Final = Seam(_TORCH_MODULES, "_global_backward_pre_hooks", _TORCH, _NO_HOOKS)
TORCH_BACKWARD_HOOKS: Final = Seam(_TORCH_MODULES, "_global_backward_hooks", _TORCH, _NO_HOOKS)
TORCH_BACKWARD_IS_FULL: Final = Seam(_TORCH_MODULES, "_global_is_full_backward_hook", _TORCH, _NO_HOOKS)
TORCH_BUFFER_HOOKS: Final = Seam(_TORCH_MODULES, "_global_buffer_registration_hooks", _TORCH, _NO_HOOKS)
TORCH_SUBMODULE_HOOKS: Final = Seam(_TORCH_MODULES, "_global_module_registration_hooks", _TORCH, _NO_HOOKS)
TORCH_PARAMETER_HOOKS: Final = Seam(_TORCH_MODULES, "_global_parameter_registration_hooks", _TORCH, _NO_HOOKS)
TORCH_STEP_PRE_HOOKS: Final = Seam(_TORCH_OPTIMIZERS, "_global_optimizer_pre_hooks", _TORCH, _NO_HOOKS)
TORCH_STEP_POST_HOOKS: Final = Seam(_TORCH_OPTIMIZERS, "_global_optimizer_post_hooks", _TORCH, _NO_HOOKS)
TORCH_PAST_CLASSES: Final = Seam("torch._C", "DisableTorchFunctionSubclass", _TORCH, _NO_TENSORS)
TORCH_NEGATED: Final = Seam("torch", "_neg_view", _TORCH, "tensors that PyTorch is still to negate do not come back")
TORCH_PRINTING: Final = Seam(
    "torch._tensor_str", "PRINT_OPTS", _TORCH, "what torch.set_printoptions has set does not come back"
)
_OPERATORS, _NO_OPERATORS = "torch._library.custom_ops", "operators that cells define with custom_op are not saved"
TORCH_OPERATOR: Final = Seam(_OPERATORS, "CustomOpDef", _TORCH, _NO_OPERATORS)
TORCH_OPERATORS: Final = Seam(_OPERATORS, "OPDEFS", _TORCH, _NO_OPERATORS)
_NO_OVERLOADS = "operators of PyTorch are not saved"
TORCH_OVERLOADED: Final = Seam("torch._ops", "OpOverloadPacket", _TORCH, _NO_OVERLOADS)
TORCH_OVERLOAD: Final = Seam("torch._ops", "OpOverload", _TORCH, _NO_OVERLOADS)
TORCH_OPERATOR_NAME: Final = Seam(
    "torch._ops:OpOverloadPacket", "_qualified_op_name", _TORCH, _NO_OVERLOADS, set_in="__init__"
)
TORCH_OPERATOR_PARTS: Final = {
    part: Seam(f"{_OPERATORS}:CustomOpDef", name, _TORCH, _NO_OPERATORS, set_in="__init__")
    for part, name in {
        "namespace": "_namespace",
        "name": "_name",
        "schema": "_schema",
        "tags": "_tags",
        "function": "_init_fn",
        "kernels": "_backend_fns",
        "fake": "_abstract_fn",
        "backward": "_backward_fn",
        "setup_context": "_setup_context_fn",
        "vmap": "_vmap_fn",
        "torch_dispatch": "_torch_dispatch_fns",
        "autocast": "_autocast_dtype",
    }.items()
}
_TREES, _NO_TREES = "torch.utils._pytree", "classes that cells give to PyTorch as trees do not come back as such"
TORCH_TREES: Final = Seam(_TREES, "register_pytree_node", _TORCH, _NO_TREES)
TORCH_TREES_OF_FIELDS: Final = Seam(_TREES, "register_dataclass", _TORCH, _NO_TREES)
TORCH_TREES_AS_ONE: Final = Seam(_TREES, "register_constant", _TORCH, _NO_TREES)
TORCH_DIVERGENCES: Final = Seam(
    "torch.distributions.kl", "_KL_REGISTRY", _TORCH, "what cells register with register_kl does not come back"
)
TORCH_COMPILED: Final = Seam("torch._dynamo", "OptimizedModule", _TORCH, "compiled modules of PyTorch are not saved")
TORCH_COMPILED_FROM: Final = Seam(
    "torch._dynamo:OptimizedModule",
    "_orig_mod",
    _TORCH,
    "compiled modules of PyTorch are not saved",
    set_in="__init__",
)
TORCH_FUNCTION_FROM: Final = Seam(
    "torch._dynamo.eval_frame:_TorchDynamoContext",
    "_torchdynamo_orig_callable",
    _TORCH,
    "compiled functions of PyTorch are not saved",
    set_in="__call__",
)

# -- Keras ------------------------------------------------------------------------------------------------------------
_KERAS = "3.8 to 3.15"
_AS_KERAS_PICKLES = "models of Keras are saved as Keras itself pickles them, without what they share with other names"

KERAS_SAVEABLE: Final = Seam("keras.src.saving.keras_saveable", "KerasSaveable", _KERAS, _AS_KERAS_PICKLES)
KERAS_NODE: Final = Seam("keras.src.ops.node", "Node", _KERAS, _AS_KERAS_PICKLES)
KERAS_ARGUMENTS: Final = Seam("keras.src.ops.symbolic_arguments", "SymbolicArguments", _KERAS, _AS_KERAS_PICKLES)
KERAS_TENSOR: Final = Seam("keras.src.backend.common.keras_tensor", "KerasTensor", _KERAS, _AS_KERAS_PICKLES)
KERAS_TRACKER: Final = Seam("keras.src.utils.tracking", "Tracker", _KERAS, _AS_KERAS_PICKLES)
KERAS_VARIABLES: Final = Seam(
    "keras.src.optimizers.base_optimizer:BaseOptimizer",
    "_trainable_variables",
    _KERAS,
    "an optimizer of Keras does not know its variables again after a move of the GPU process",
    set_in="__init__",
)
KERAS_OPERATIONS: Final = Seam(
    "keras.src.ops.function:Function",
    "_operations",
    _KERAS,
    "a model of Keras has no configuration after a move of the GPU process",
    set_in="__init__",
)
KERAS_LOSSES: Final = Seam(
    "keras.src.layers.layer:Layer",
    "_losses",
    _KERAS,
    "losses that a layer of Keras has added are told after its next call only, after a move of the GPU process",
    set_in="__init__",
)
KERAS_STATE: Final = Seam(
    "keras.src.backend.common.global_state",
    "GLOBAL_STATE_TRACKER",
    _KERAS,
    "Keras' settings do not come back with the GPU process, and new layers have the names of those that are there",
)

#: All of the table.
SEAMS: Final = (
    *(seam for seam in tuple(globals().values()) if isinstance(seam, Seam)),
    *TORCH_OPERATOR_PARTS.values(),
)


def missing(of: str = "") -> list[str]:
    """One sentence for each name that the installed versions do not have, as far as their packages are imported.

    `of` a package or a module only, if it is given.
    """
    wanted = (seam for seam in SEAMS if not seam.when_asked and seam.package in sys.modules)
    return [seam.told() for seam in wanted if (not of or of in {seam.package, seam.module}) and seam.missing]


def after_imports(tell: Callable[[str], object]) -> AfterImport:
    """What tells, of each package and module of the table, what it does not have: now, or once it is imported."""

    def look(module: ModuleType) -> None:
        for sentence in missing(module.__name__):
            tell(sentence)

    names = {name for seam in SEAMS if not seam.when_asked for name in (seam.package, seam.module)}
    return AfterImport(dict.fromkeys(sorted(names), look))
