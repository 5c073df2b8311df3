"""The ClientApp of every site and every method: it carries bytes, and the installed Tacit does the rest.

Flower starts it as a new process for each message. Nothing is kept in Flower's context and nothing of a step
goes to Flower's log: state and keys are in the site's folder, which the SuperNode names in its configuration
(``--node-config 'site="/path/of/the/folder"'``).
"""

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from tacit.core.errors import ConfigError, TacitError
from tacit.core.parallel import one_thread
from tacit.deploy.answer import answer, refusal
from tacit.engines.flower import pack, unpack
from tacit.engines.sitefolder import SiteFolder

app = ClientApp()


@app.query("tacit")
def step(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Perform one ask."""
    try:
        call, job, timeout = unpack(message.content)
        site = context.node_config.get("site")
        if not isinstance(site, str):
            raise ConfigError(
                "this SuperNode does not say where its site's folder is: --node-config 'site=\"…\"'"
            )
        with one_thread():
            raw = answer(SiteFolder(site), context.run_config, call, job, timeout)
    except TacitError as error:
        raw = refusal(type(error).__name__, error.public)
    return FlowerMessage(pack(raw), reply_to=message)
