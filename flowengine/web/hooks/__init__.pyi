from .callbacks import CallbackSender as CallbackSender
from .webhooks import make_webhook_routes as make_webhook_routes
