# An application around Authlib on SQLite, with the defaults of the library, for one client. Settings by environment: FOLDER,
# LIFE, CLIENT_ID, CLIENT_SECRET, CALLBACK, PASSWORD. Argument: the port.
import os
import sys
import time
from urllib.parse import urlencode

os.environ['AUTHLIB_INSECURE_TRANSPORT'] = '1'
from authlib.integrations.flask_oauth2 import AuthorizationServer, ResourceProtector  # noqa: E402
from authlib.integrations.sqla_oauth2 import (  # noqa: E402
    OAuth2AuthorizationCodeMixin, OAuth2ClientMixin, OAuth2TokenMixin, create_bearer_token_validator,
    create_query_client_func, create_revocation_endpoint, create_save_token_func,
)
from authlib.oauth2 import OAuth2Error  # noqa: E402
from authlib.oauth2.rfc6749 import grants  # noqa: E402
from authlib.oauth2.rfc7636 import CodeChallenge  # noqa: E402
from flask import Flask, jsonify, redirect, request, session  # noqa: E402
from flask_sqlalchemy import SQLAlchemy  # noqa: E402
from markupsafe import escape  # noqa: E402

LIFE = int(os.environ['LIFE'])
app = Flask(__name__)
app.config.update(
    SECRET_KEY='x' * 32,
    SQLALCHEMY_DATABASE_URI='sqlite:///' + os.environ['FOLDER'] + '/db.sqlite?timeout=20',
    OAUTH2_REFRESH_TOKEN_GENERATOR=True,
    OAUTH2_TOKEN_EXPIRES_IN={'authorization_code': LIFE, 'refresh_token': LIFE},
)
db = SQLAlchemy(app)


class User(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    username = db.Column(db.String(40), unique=True)

    def get_user_id(self):
        return self.id


class Client(db.Model, OAuth2ClientMixin):
    id = db.Column(db.Integer, primary_key=True)


class Code(db.Model, OAuth2AuthorizationCodeMixin):
    id = db.Column(db.Integer, primary_key=True)
    user_id = db.Column(db.Integer)


class Token(db.Model, OAuth2TokenMixin):
    id = db.Column(db.Integer, primary_key=True)
    user_id = db.Column(db.Integer)
    user = db.relationship('User', primaryjoin='foreign(Token.user_id) == User.id', viewonly=True)


class CodeGrant(grants.AuthorizationCodeGrant):
    def save_authorization_code(self, code, request):
        data = request.payload.data
        db.session.add(Code(
            code=code, client_id=request.client.client_id, redirect_uri=request.payload.redirect_uri,
            scope=request.scope, user_id=request.user.id, code_challenge=data.get('code_challenge'),
            code_challenge_method=data.get('code_challenge_method'),
        ))
        db.session.commit()

    def query_authorization_code(self, code, client):
        item = Code.query.filter_by(code=code, client_id=client.client_id).first()
        return item if item and not item.is_expired() else None

    def delete_authorization_code(self, authorization_code):
        db.session.delete(authorization_code)
        db.session.commit()

    def authenticate_user(self, authorization_code):
        return db.session.get(User, authorization_code.user_id)


class RefreshGrant(grants.RefreshTokenGrant):
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token):
        item = Token.query.filter_by(refresh_token=refresh_token).first()
        return item if item and not item.is_revoked() else None

    def authenticate_user(self, credential):
        return db.session.get(User, credential.user_id)

    def revoke_old_credential(self, credential):
        credential.refresh_token_revoked_at = int(time.time())
        db.session.add(credential)
        db.session.commit()


server = AuthorizationServer(
    app,
    query_client=create_query_client_func(db.session, Client),
    save_token=create_save_token_func(db.session, Token),
)
server.register_grant(CodeGrant, [CodeChallenge(required=True)])
server.register_grant(RefreshGrant)
server.register_endpoint(create_revocation_endpoint(db.session, Token))
require_oauth = ResourceProtector()
require_oauth.register_token_validator(create_bearer_token_validator(db.session, Token)())


@app.route('/login', methods=['GET', 'POST'])
def login():
    if request.method == 'GET':
        back = escape(request.args.get('next', '/'))
        return f'''<form method="post"><input type="hidden" name="next" value="{back}"><input name="username">
          <input type="password" name="password"><button>Sign in</button></form>'''
    user = User.query.filter_by(username=request.form['username']).first()
    if not user or request.form['password'] != os.environ['PASSWORD']:
        return 'no', 401
    session['id'] = user.id
    return redirect(request.form['next'])


@app.route('/oauth/authorize', methods=['GET', 'POST'])
def authorize():
    user = db.session.get(User, session['id']) if 'id' in session else None
    try:
        grant = server.get_consent_grant(end_user=user)
    except OAuth2Error as error:
        return server.handle_error_response(request, error)
    if not user:
        return redirect('/login?' + urlencode({'next': request.full_path}))
    if request.method == 'GET':
        return '''<form method="post"><button name="confirm" value="yes">Accept</button>
          <button name="confirm" value="">Refuse</button></form>'''
    return server.create_authorization_response(grant=grant, grant_user=user if request.form.get('confirm') else None)


@app.post('/oauth/token')
def token():
    return server.create_token_response()


@app.post('/oauth/revoke')
def revoke():
    return server.create_endpoint_response('revocation')


@app.get('/data')
@require_oauth()
def data():
    return jsonify(ok=True)


@app.post('/withdraw/<name>')
def withdraw(name):
    user = User.query.filter_by(username=name).one()
    now = int(time.time())
    Token.query.filter_by(user_id=user.id).update({'access_token_revoked_at': now, 'refresh_token_revoked_at': now})
    db.session.commit()
    return 'done'


with app.app_context():
    db.create_all()
    if not User.query.first():
        db.session.add_all([User(username='alice'), User(username='bob')])
        client = Client(client_id=os.environ['CLIENT_ID'], client_secret=os.environ['CLIENT_SECRET'])
        client.set_client_metadata({
            'client_name': 'the bff', 'grant_types': ['authorization_code', 'refresh_token'], 'response_types': ['code'],
            'redirect_uris': [os.environ['CALLBACK']], 'scope': 'read write',
            'token_endpoint_auth_method': 'client_secret_basic',
        })
        db.session.add(client)
        db.session.commit()
app.run('127.0.0.1', int(sys.argv[1]), threaded=True)
