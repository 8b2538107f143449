# Doorkeeper in a small Rails application on SQLite, for one client. Settings by environment: FOLDER, LIFE, CLIENT_ID,
# CLIENT_SECRET, CALLBACK, PASSWORD.
require 'rails'
require 'active_record/railtie'
require 'action_controller/railtie'
require 'action_view/railtie'
require 'doorkeeper'

FOLDER = ENV.fetch('FOLDER')
ENV['DATABASE_URL'] = "sqlite3:#{FOLDER}/db.sqlite?timeout=5000&pool=20"

class Probe < Rails::Application
  config.load_defaults 6.1
  config.root = FOLDER
  config.eager_load = true
  config.secret_key_base = 'x' * 64
  config.hosts.clear
  config.logger = Logger.new($stdout, level: Logger::WARN)
  config.session_store :cookie_store, key: '_probe'
end

class User < ActiveRecord::Base; end

class ApplicationController < ActionController::Base
  def form
    fields = '<input name="user"><input type="password" name="password">'
    back = %(<input type="hidden" name="to" value="#{ERB::Util.h(params[:to])}">)
    token = %(<input type="hidden" name="authenticity_token" value="#{form_authenticity_token}">)
    render html: %(<form method="post" action="/login">#{fields}#{back}#{token}<button>Sign in</button></form>).html_safe
  end

  def sign_in
    user = User.find_by(name: params[:user])
    return render(plain: 'no', status: 401) unless user && params[:password] == ENV.fetch('PASSWORD')
    session[:user] = user.id
    redirect_to params[:to]
  end
end

class DataController < ActionController::API
  before_action :doorkeeper_authorize!
  def show = render(json: { ok: true })
end

Doorkeeper.configure do
  orm :active_record
  resource_owner_authenticator do
    User.find_by(id: session[:user]) || redirect_to("/login?to=#{CGI.escape(request.fullpath)}")
  end
  use_refresh_token
  default_scopes :public
  optional_scopes :write
  access_token_expires_in Integer(ENV.fetch('LIFE'))
  force_ssl_in_redirect_uri false
end

Probe.initialize!
Probe.routes.draw do
  use_doorkeeper
  get '/login', to: 'application#form'
  post '/login', to: 'application#sign_in'
  get '/data', to: 'data#show'
end

unless ActiveRecord::Base.connection.table_exists?(:users)
  ActiveRecord::Schema.define do
    create_table(:users) { |t| t.string :name }
    create_table(:oauth_applications) do |t|
      %i[name uid secret].each { |name| t.string name, null: false }
      t.text :redirect_uri, null: false
      t.string :scopes, null: false, default: ''
      t.boolean :confidential, null: false, default: true
      t.timestamps null: false
    end
    create_table(:oauth_access_grants) do |t|
      t.references :resource_owner, null: false
      t.references :application, null: false
      t.string :token, null: false, index: { unique: true }
      t.integer :expires_in, null: false
      t.text :redirect_uri, null: false
      t.datetime :created_at, null: false
      t.datetime :revoked_at
      t.string :scopes, null: false, default: ''
      t.string :code_challenge
      t.string :code_challenge_method
    end
    create_table(:oauth_access_tokens) do |t|
      t.references :resource_owner
      t.references :application, null: false
      t.string :token, null: false, index: { unique: true }
      t.string :refresh_token, index: { unique: true }
      t.integer :expires_in
      t.datetime :revoked_at
      t.datetime :created_at, null: false
      t.string :scopes
      t.string :previous_refresh_token, null: false, default: ''
    end
  end
  %w[alice bob].each { |name| User.create!(name: name) }
  Doorkeeper::Application.create!(
    name: 'the bff', uid: ENV.fetch('CLIENT_ID'), secret: ENV.fetch('CLIENT_SECRET'),
    redirect_uri: ENV.fetch('CALLBACK'), scopes: 'public write'
  )
end

run Probe
